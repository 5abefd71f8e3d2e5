-- Writes one lane's messages to their streams and its journal beside them, all or nothing as far as the journal is concerned.
-- Protocol: docs/architecture.md "The journal".  Plain Lua 5.1 of Redis 6.2 and later and of Valkey; atomic as every script is.
--
-- KEYS[1]  the lane's journal        KEYS[2..]  the distinct streams of this call
-- ARGV[1]  the token the journal must have ('' when it must not exist)
-- ARGV[2]  the token it gets
-- ARGV[3]  the journal's new value if every message is added: token, carried names, one name a message; a line each
-- ARGV[4]  number of carried names   ARGV[5]  number of messages   ARGV[6]  fields a message: 6, or 7 with headers
-- ARGV[7..]  the messages: the stream's number within KEYS[2..] (only when there is more than one), then the fields
--
-- Replies  {'FENCED', journal}  another token stands there; nothing was written
--          {'WRITTEN', outcomes, error...}  outcomes has one letter a message: a added, r refused (its error follows, in order),
--                                           w withheld, since an earlier one of its aggregate was refused
--          an error: nothing was written

local journal, expected = KEYS[1], ARGV[1]

-- Only the first bytes: a journal may be long, and this is done for every write.
local head = redis.pcall('GETRANGE', journal, 0, #expected)
if type(head) == 'table' then
  return head
end
if head ~= (expected == '' and '' or expected .. '\n') then
  return {'FENCED', redis.call('GET', journal) or ''}
end

-- First, and the only write that may be refused as a whole (memory, read-only replica, disk): then nothing was added.  Once a script
-- has written, Redis refuses it nothing for such reasons any more.
local set = redis.pcall('SET', journal, ARGV[3])
if set.err then
  return set
end

-- From here on nothing may raise or return early: what is in a stream must be reported.
local carried_n, messages_n = tonumber(ARGV[4]), tonumber(ARGV[5])
local fields_n, is_many = tonumber(ARGV[6]), #KEYS > 2
local stream, at = KEYS[2], 7
local outcomes, errors, stopped

for i = 1, messages_n do
  if is_many then
    stream, at = KEYS[1 + tonumber(ARGV[at])], at + 1
  end
  local aggregate = stopped and #ARGV[at + 1] .. ':' .. ARGV[at + 1] .. ARGV[at + 2]
  local outcome = 'a'
  if aggregate and stopped[aggregate] then
    outcome = 'w'
  else
    local id
    if fields_n == 7 then
      id = redis.pcall('XADD', stream, '*', 'message_id', ARGV[at], 'aggregate_type', ARGV[at + 1], 'aggregate_id', ARGV[at + 2],
        'event_type', ARGV[at + 3], 'payload', ARGV[at + 4], 'created_at', ARGV[at + 5], 'headers', ARGV[at + 6])
    else
      id = redis.pcall('XADD', stream, '*', 'message_id', ARGV[at], 'aggregate_type', ARGV[at + 1], 'aggregate_id', ARGV[at + 2],
        'event_type', ARGV[at + 3], 'payload', ARGV[at + 4], 'created_at', ARGV[at + 5])
    end
    if type(id) ~= 'string' then
      outcome = 'r'
      if not outcomes then
        outcomes, errors, stopped = {}, {}, {}
        for before = 1, i - 1 do
          outcomes[before] = 'a'
        end
        aggregate = #ARGV[at + 1] .. ':' .. ARGV[at + 1] .. ARGV[at + 2]
      end
      errors[#errors + 1] = type(id) == 'table' and id.err or 'ERR XADD answered without an id'
      stopped[aggregate] = true
    end
  end
  if outcomes then
    outcomes[i] = outcome
  end
  at = at + fields_n
end

if not outcomes then
  return {'WRITTEN', string.rep('a', messages_n)}
end

-- The journal again, without those that are not in a stream.
local lines, from = {}, 1
for line = 1, 1 + carried_n + messages_n do
  local to = string.find(ARGV[3], '\n', from, true)
  if line <= 1 + carried_n or outcomes[line - 1 - carried_n] == 'a' then
    lines[#lines + 1] = string.sub(ARGV[3], from, to)
  end
  from = to + 1
end
redis.call('SET', journal, table.concat(lines))

local reply = {'WRITTEN', table.concat(outcomes)}
for i = 1, #errors do
  reply[2 + i] = errors[i]
end
return reply
