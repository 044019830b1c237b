-- confirm: raise the fencing counters to the token's number, only if every key
-- still holds the token.
--
-- KEYS  the lock keys, then as many counter keys
-- ARGV  1 token, 2 fencing number, 3 TTL of the counters in ms
-- Reply 1 the counters are at least the number, 0 a key does not hold the token

local token, fence = ARGV[1], tonumber(ARGV[2])
local n = #KEYS / 2
for i = 1, n do
  if redis.call('GET', KEYS[i]) ~= token then return 0 end
end
for i = n + 1, 2 * n do
  if tonumber(redis.call('GET', KEYS[i]) or '0') < fence then
    redis.call('SET', KEYS[i], ARGV[2], 'PX', ARGV[3])
  end
end
return 1
