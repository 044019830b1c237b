-- inspect: say what the keys hold, and change nothing.
--
-- KEYS  lock keys
-- ARGV  none
-- Reply an array, three elements for each key: its value; its remaining TTL in
--       ms, -1 if it never ends, -2 if the key is free, -3 if it cannot be a
--       lock's, and then the value says why; its fencing counter, 0 if there is
--       none that can be read
--
-- The counters' keys are not among KEYS: a user who may not read them, since
-- they never fence, would be refused the whole call. pcall, for the same reason
-- and so that one key of the wrong type does not hide the others.

local reply = {}
for i = 1, #KEYS do
  local holder, left = redis.pcall('GET', KEYS[i]), -2
  if type(holder) == 'table' then
    holder, left = holder.err, -3
  elseif not holder then
    holder = ''
  elseif #holder > 256 then
    holder, left = 'ERR a value of ' .. #holder .. ' bytes is no token', -3
  else
    left = redis.call('PTTL', KEYS[i])
  end
  local counter = redis.pcall('GET', 'redlock:fence:' .. KEYS[i])
  if type(counter) == 'string' and string.find(counter, '^%d+$') then
    counter = tonumber(counter) or math.huge
    if counter >= 9007199254740992 then counter = 0 end
  else
    counter = 0
  end
  reply[3 * i - 2], reply[3 * i - 1], reply[3 * i] = holder, left, counter
end
return reply
