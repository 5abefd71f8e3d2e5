-- Reads new entries of a lane's streams for a consumer group, if the caller still is the lane's owner.  Protocol: docs/consuming.md "How it works".
-- Plain Lua 5.1 of Redis 6.2 and later and of Valkey.
--
-- KEYS[1]  who owns the lane in this group   KEYS[2]  with an index: the lane's index of stream names   KEYS[2 or 3..]  streams
-- ARGV[1]  the owner's token   ARGV[2]  group   ARGV[3]  consumer   ARGV[4]  most entries   ARGV[5]  1: there is an index
--
-- A stream without the group gets it, from the stream's beginning.  With an index a stream that is gone leaves it; without one it is made.
--
-- Replies  {'FENCED', token}  somebody else has taken the lane over; nothing was read
--          {'READ', streams looked at to their end, number, word, value, ...}: for stream `number` (from 0) the word
--            GOT and its entries, ERR and an error, END and the id of its last entry (no new ones; without an index only)

local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  return {'FENCED', owner or ''}
end

local group, consumer, left, has_index = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local first = has_index and 3 or 2
local reply = {'READ', 0}

local function read(key)
  return redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', left, 'STREAMS', key, '>')
end

local function add(number, word, value)
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = number, word, value
end

for k = first, #KEYS do
  local key = KEYS[k]
  local got = read(key)
  if got and got.err and string.find(got.err, 'NOGROUP', 1, true) then
    if has_index and redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', KEYS[2], key)
      got = false
    else
      local made = redis.pcall('XGROUP', 'CREATE', key, group, '0', 'MKSTREAM')
      got = made.err and made or read(key)
    end
  end
  if got and got.err then
    add(k - first, 'ERR', got.err)
  elseif got then
    local entries = got[1][2]
    add(k - first, 'GOT', entries)
    left = left - #entries
  elseif not has_index then
    local info = redis.call('XINFO', 'STREAM', key)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        add(k - first, 'END', info[i + 1])
      end
    end
  end
  if left <= 0 then
    break -- there may be more of this one
  end
  reply[2] = k - first + 1
end
return reply
