-- Writes one lane's messages to their streams and its journal beside them, all or nothing as far as the journal is concerned.
-- Protocol: docs/architecture.md "The journal".  Plain Lua 5.1 of Redis 6.2 and later and of Valkey; atomic as every script is.
--
-- KEYS[1]  the lane's journal        KEYS[2..]  the distinct streams of this call, then the index of stream names if ARGV[8] says so
-- ARGV[1]  the token the journal must have ('' when it must not exist)
-- ARGV[2]  the token it gets
-- ARGV[3]  the journal's new value if every message is added: token, carried names, one name a message; a line each
-- ARGV[4]  number of carried names   ARGV[5]  number of messages   ARGV[6]  fields a message: 6, 7 with headers; 3: a CloudEvents envelope, then
--          the aggregate's type and id, which are not in the entry
-- ARGV[7]  number n of the words that follow, 0 when none of this is wanted:
--          1 when the last key is the index, else 0; milliseconds after which a stream without new entries expires, 0 for never; the
--          consumer groups that each stream has from its first entry on
-- ARGV[8+n..]  the messages: the stream's number within KEYS[2..] (only when there is more than one stream), then the fields
--
-- Replies  {'FENCED', journal}  another token stands there; nothing was written
--          {'WRITTEN', outcomes, error...}  outcomes has one letter a message: a added, r refused (its error follows, in order),
--                                           w withheld, since an earlier one of its aggregate was refused.
--                                           One error more: why a group, a name in the index or an expiry could not be written
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
local fields_n, upkeep_n = tonumber(ARGV[6]), tonumber(ARGV[7])
local index = upkeep_n > 0 and ARGV[8] == '1' and KEYS[#KEYS]
local streams_n = #KEYS - (index and 2 or 1)
local is_many = streams_n > 1
local number, stream, at = 1, KEYS[2], 8 + upkeep_n
local outcomes, errors, stopped
local last_ids, added_n = upkeep_n > 0 and {}, {}

for i = 1, messages_n do
  if is_many then
    number, at = tonumber(ARGV[at]), at + 1
    stream = KEYS[1 + number]
  end
  local aggregate = stopped and #ARGV[at + 1] .. ':' .. ARGV[at + 1] .. ARGV[at + 2]
  local outcome = 'a'
  if aggregate and stopped[aggregate] then
    outcome = 'w'
  else
    local id
    if stream == index then
      id = {err = 'ERR the name of the stream is that of the index of stream names'}
    elseif fields_n == 3 then
      id = redis.pcall('XADD', stream, '*', 'cloudevent', ARGV[at])
    elseif fields_n == 7 then
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
    elseif last_ids then
      last_ids[number], added_n[number] = id, (added_n[number] or 0) + 1
    end
  end
  if outcomes then
    outcomes[i] = outcome
  end
  at = at + fields_n
end

-- What consumers find streams and entries by.  The entries are in: an error here takes nothing back.
local upkeep_error
local function try(key, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and not string.find(reply.err, 'BUSYGROUP', 1, true) then
    upkeep_error = upkeep_error or reply.err .. ' (' .. (...) .. ' ' .. key .. ')'
  end
  return reply
end

for n = 1, last_ids and streams_n or 0 do
  local id, key = last_ids[n], KEYS[1 + n]
  if id then
    -- A stream that holds nothing else may be new, or one that was deleted or has expired: it may have no groups.
    if upkeep_n > 2 and try(key, 'XLEN', key) == added_n[n] then
      for group = 10, 7 + upkeep_n do
        try(key, 'XGROUP', 'CREATE', key, ARGV[group], '0')
      end
    end
    if index then
      try(index, 'ZADD', index, string.match(id, '^%d+'), key)
    end
    if ARGV[9] ~= '0' then
      try(key, 'PEXPIRE', key, ARGV[9])
    end
  end
end

if not outcomes then
  return {'WRITTEN', string.rep('a', messages_n), upkeep_error}
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
reply[3 + #errors] = upkeep_error
return reply
