-- confirm: raise the fencing counters to the attempt's number, only if every key
-- still holds the token and this node has not voted for the number, or a higher
-- one, before.
--
-- KEYS  the lock keys, then as many counter keys
-- ARGV  1 token, 2 fencing number, 3 TTL of the counters in ms,
--       4 (optional) 'returned': it was this node that returned the number
-- Reply 1 the counters are the number, 0 a key does not hold the token, or this
--       node has voted for the number or a higher one
--
-- A node votes for a number by returning it or by raising its counters to it,
-- and does so once, or two holders could have the same number: their attempts
-- may have overlapped if keys ended early, and may even have one token, if two
-- clients resume a lock at once.

local token, fence = ARGV[1], tonumber(ARGV[2])
local n = #KEYS / 2
for i = 1, n do
  if redis.call('GET', KEYS[i]) ~= token then return 0 end
end

-- All are read before one is written, as in acquire.
local low = {}
for i = n + 1, 2 * n do
  local last = redis.call('GET', KEYS[i]) or '0'
  if not string.find(last, '^%d+$') then return redis.error_reply('ERR fencing counter is not a number') end
  last = tonumber(last) or math.huge
  if last > fence or last == fence and not ARGV[4] then return 0 end
  if last < fence then low[#low + 1] = KEYS[i] end
end
for _, counter in ipairs(low) do
  redis.call('SET', counter, ARGV[2], 'PX', ARGV[3])
end
return 1
