-- Adds messages to their streams, in order, up to the first one that is refused.
--
-- KEYS      the distinct streams of this call
-- ARGV[1]   number of messages        ARGV[2]  fields a message: 6, or 7 with headers
-- ARGV[3..] the messages: the stream's number within KEYS (only when there is more than one), then the fields
--
-- Replies {number added} or {number added, error of the next one}; an error reply: nothing was added.
local messages_n, fields_n, is_many = tonumber(ARGV[1]), tonumber(ARGV[2]), #KEYS > 1
local stream, at = KEYS[1], 3

for i = 1, messages_n do
  if is_many then
    stream, at = KEYS[tonumber(ARGV[at])], at + 1
  end
  local id
  if fields_n == 7 then
    id = redis.pcall('XADD', stream, '*', 'message_id', ARGV[at], 'aggregate_type', ARGV[at + 1], 'aggregate_id', ARGV[at + 2],
      'event_type', ARGV[at + 3], 'payload', ARGV[at + 4], 'created_at', ARGV[at + 5], 'headers', ARGV[at + 6])
  else
    id = redis.pcall('XADD', stream, '*', 'message_id', ARGV[at], 'aggregate_type', ARGV[at + 1], 'aggregate_id', ARGV[at + 2],
      'event_type', ARGV[at + 3], 'payload', ARGV[at + 4], 'created_at', ARGV[at + 5])
  end
  if type(id) ~= 'string' then
    return {i - 1, type(id) == 'table' and id.err or 'ERR XADD answered without an id'}
  end
  at = at + fields_n
end
return {messages_n}
