-- scan: one page of the keys that match a pattern.
--
-- KEYS  none
-- ARGV  1 cursor, '0' for the first page, 2 glob pattern, 3 about how many keys to look at
-- Reply an array: the cursor of the next page ('0': there is none), then keys
--
-- Keys that cannot be a lock's are left out: those that are too long, and those
-- of the space that the library keeps for itself. A page has an end even where
-- a node pays no heed to the count: a reply that is too large would cost the
-- connection, which others use.

local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local reply, bytes = {page[1]}, 0
for _, key in ipairs(page[2]) do
  if #key <= 1024 and string.sub(key, 1, 8) ~= 'redlock:' then
    bytes = bytes + #key
    if #reply == 4000 or bytes > 500000 then return redis.error_reply('ERR page of the listing is too large') end
    reply[#reply + 1] = key
  end
end
return reply
