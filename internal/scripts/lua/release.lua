-- release: delete the keys that hold the token, and only those; or make them
-- end at a given time.
--
-- KEYS  the lock keys
-- ARGV  1 token, 2 '1' to announce each such key on redlock:released:<key>; the
--       message is the owner label, what follows the first dot of the token,
--       3 (optional) in how many ms the keys shall end instead of now
-- Reply the number of keys that held the token
--
-- pcall, twice: a key of the wrong type is not ours and must not keep the rest
-- from being deleted; a user without the channel still releases.

local token, announce, rest = ARGV[1], ARGV[2] == '1', ARGV[3]
local ours = 0
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == token then
    if rest then
      redis.call('PEXPIRE', KEYS[i], rest)
    else
      redis.call('DEL', KEYS[i])
    end
    ours = ours + 1
    if announce then
      redis.pcall('PUBLISH', 'redlock:released:' .. KEYS[i], string.match(token, '%.(.*)') or '')
    end
  end
end
return ours
