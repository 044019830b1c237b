-- announce: publish what has become of a lock.
--
-- KEYS  the lock keys
-- ARGV  1 what has happened, 2 the owner label
-- Reply 1
--
-- The channel is redlock:<what>:<key>, the message the label. pcall: a user
-- without the channel has been promised nothing.

for i = 1, #KEYS do
  redis.pcall('PUBLISH', 'redlock:' .. ARGV[1] .. ':' .. KEYS[i], ARGV[2])
end
return 1
