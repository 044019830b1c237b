-- release: delete the keys that hold the token, and only those.
--
-- KEYS  the lock keys
-- ARGV  1 token, 2 '1' to announce each deleted key on redlock:released:<key>;
--       the message is the owner label, what follows the first dot of the token
-- Reply the number of keys that were deleted
--
-- pcall, twice: a key of the wrong type is not ours and must not keep the rest
-- from being deleted; a user without the channel still releases.

local token, announce = ARGV[1], ARGV[2] == '1'
local deleted = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == token then
    redis.call('DEL', KEYS[i])
    deleted = deleted + 1
    if announce then
      redis.pcall('PUBLISH', 'redlock:released:' .. KEYS[i], string.match(token, '%.(.*)') or '')
    end
  end
end
return deleted
