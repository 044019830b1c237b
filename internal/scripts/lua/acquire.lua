-- acquire: give all the keys to one token, or change nothing.
--
-- KEYS  the lock keys; with fencing, as many counter keys behind them
-- ARGV  1 token, 2 TTL in ms, 3 fencing proposal (0: no fencing), 4 TTL of the counters in ms,
--       5 (optional) 'again': only if every key holds the token already,
--                    'new': only if none does
-- Reply granted: the integer fencing counter, 0 without fencing
--       refused: an array: the longest remaining TTL of a holder in ms (-1: one
--       never ends), 1 if a holder's token is not of our making and so will
--       not be announced when it is released (else 0), then the positions in
--       KEYS of the keys that are held
--
-- A key that already holds the token counts as free, so a repeated acquire is
-- granted again. It keeps a TTL that runs longer: an acquire that arrives late
-- must not undo a renewal that has been counted. Everything is read before
-- anything is written: a key of the wrong type fails the whole vote while
-- nothing has been changed.

local token, ttl, proposal, only = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
local n = #KEYS
if proposal > 0 then n = n / 2 end

local held, longest, silent, kept = {}, 0, 0, {}
for i = 1, n do
  local holder = redis.call('GET', KEYS[i])
  if holder == token and only ~= 'new' then
    kept[i] = redis.call('PTTL', KEYS[i]) >= ttl
  elseif holder or only == 'again' then
    local left = holder and redis.call('PTTL', KEYS[i]) or 0
    if left < 0 then left = math.huge end
    if left > longest then longest = left end
    if holder and string.sub(holder, 23, 23) ~= '.' then silent = 1 end
    held[#held + 1] = i
  end
end
if #held > 0 then
  if longest == math.huge then longest = -1 end
  return {longest, silent, unpack(held)}
end

-- A Lua number is exact below 2^53 only; a counter there would stop growing.
-- A counter is digits and nothing else: Lua takes nan for a number, too, which
-- is smaller than none and would be overwritten.
local fence = proposal
if proposal > 0 then
  for i = n + 1, 2 * n do
    local last = redis.call('GET', KEYS[i])
    if last then
      if not string.find(last, '^%d+$') then return redis.error_reply('ERR fencing counter is not a number') end
      last = tonumber(last) or math.huge
      if last >= fence then fence = last + 1 end
    end
  end
  if fence >= 9007199254740992 then return redis.error_reply('ERR fencing counter is exhausted') end
end

for i = 1, n do
  if not kept[i] then redis.call('SET', KEYS[i], token, 'PX', ARGV[2]) end
end
if proposal > 0 then
  local counter = string.format('%.0f', fence)
  for i = n + 1, 2 * n do
    redis.call('SET', KEYS[i], counter, 'PX', ARGV[4])
  end
end
return fence
