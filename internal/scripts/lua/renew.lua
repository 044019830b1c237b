-- renew: begin the TTL anew, only if every key holds the token.
--
-- KEYS  the lock keys
-- ARGV  1 token, 2 TTL in ms
-- Reply 1 renewed, 0 a key is missing, -1 a key holds something else
--
-- PEXPIRE rather than SET: it works on a node that is out of memory. A TTL is
-- never shortened: a renewal that arrives late must not undo a later one.

local token, ttl = ARGV[1], tonumber(ARGV[2])
local missing = false
for i = 1, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if not holder then
    missing = true
  elseif holder ~= token then
    return -1
  end
end
if missing then return 0 end

for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < ttl then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
return 1
