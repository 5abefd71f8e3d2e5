-- Moves an entry that cannot be handled to the lane's stream of parked ones and acknowledges it, both or neither.
--
-- KEYS[1]  the stream   KEYS[2]  the stream of parked entries   KEYS[3]  who owns the lane in this group
-- ARGV[1]  group   ARGV[2]  the entry's id   ARGV[3]  attempts   ARGV[4]  why   ARGV[5]  the owner's token
--
-- The parked entry has the fields of the original, then parked_stream, parked_id, parked_attempts, parked_error.
-- Replies  the parked entry's id; '' when the entry is not pending (it was parked or acknowledged before); an error: nothing was done

if redis.call('GET', KEYS[3]) ~= ARGV[5] then
  return redis.error_reply('FENCED somebody else has taken the lane over')
end
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if pending.err then
  return pending
end
if #pending == 0 then
  return ''
end
local entries = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
local fields = entries[1] and entries[1][2] or {}
for _, value in ipairs({'parked_stream', KEYS[1], 'parked_id', ARGV[2], 'parked_attempts', ARGV[3], 'parked_error', ARGV[4]}) do
  fields[#fields + 1] = value
end
local id = redis.pcall('XADD', KEYS[2], '*', unpack(fields))
if type(id) == 'table' then
  return id
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return id
