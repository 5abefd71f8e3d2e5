-- Removes the oldest entries of one stream, a bounded number, and takes a stream that is gone out of the index of stream names.
-- What is safe to remove is decided and removed in one step, so that no XREADGROUP, XGROUP CREATE or XADD can come in between.
-- Plain Lua 5.1 of Redis 6.2 and later and of Valkey.
--
-- KEYS[1]  the stream            KEYS[2]  the index of stream names, where there is one
-- ARGV[1]  acked, maxlen, age, or none (looks after the index only)
-- ARGV[2]  acked: for how many milliseconds an entry stays at least; maxlen: entries that stay; age: milliseconds
-- ARGV[3]  entries to remove at most, but for the rest of one node (stream-node-max-entries, stream-node-max-bytes)
-- ARGV[4..]  groups that must be there before acked removes anything
--
-- Replies {removed, those of them from the first that some group had not read or not acknowledged on, 1 when there may be more to remove now, state}
-- state: present, gone (there is no such stream), empty (no entry, nothing pending), waits (acked: no group, or one of ARGV[4..] is missing)

local stream, index = KEYS[1], KEYS[2]
local mode, value, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local groups = redis.pcall('XINFO', 'GROUPS', stream)
if groups.err then
  if redis.call('EXISTS', stream) == 1 then
    return groups
  end
  if index then
    redis.call('ZREM', index, stream)
  end
  return {0, 0, 0, 'gone'}
end

-- Ids are compared as decimal numbers of any length: the numbers of Lua are exact up to 2^53 only.
local function split(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return ms or id, seq or '0'
end
local function is_smaller(a, b)
  return #a < #b or (#a == #b and a < b)
end
local function is_before(a, b)
  local a_ms, a_seq = split(a)
  local b_ms, b_seq = split(b)
  if a_ms ~= b_ms then
    return is_smaller(a_ms, b_ms)
  end
  return is_smaller(a_seq, b_seq)
end
-- The next id; the same one where that cannot be told, which keeps an entry more.
local function after(id)
  local ms, seq = split(id)
  local n = tonumber(seq)
  return n < 9007199254740991 and ms .. '-' .. string.format('%.0f', n + 1) or id
end

-- The oldest entry there is.
local first = mode ~= 'none' and redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
first = first and first[1]

-- What is below safe, every group has read and acknowledged: it ends at what a group has not read yet, or at its oldest pending entry that
-- is still there.  nil: there is no group.
local safe
local pending_n = 0
local names = {}
for _, fields in ipairs(groups) do
  local group = {}
  for i = 1, #fields, 2 do
    group[fields[i]] = fields[i + 1]
  end
  local upto = after(group['last-delivered-id'])
  local oldest = first and group.pending > 0 and redis.call('XPENDING', stream, group.name, first, '+', 1)[1]
  if oldest then
    upto = is_before(oldest[1], upto) and oldest[1] or upto
  end
  safe = (not safe or is_before(upto, safe)) and upto or safe
  pending_n = pending_n + group.pending
  names[group.name] = true
end

local is_more = 0
-- Whole nodes first, a limited number, but one at least however large nodes are; then what is left of the one that the bound lies in.
local function trim(strategy, bound)
  local entries_n = redis.call('XLEN', stream)
  local at_most = limit
  repeat
    local removed = redis.call('XTRIM', stream, strategy, '~', bound, 'LIMIT', string.format('%.0f', at_most))
    if removed > 0 then
      is_more = 1
      return removed
    end
    at_most = at_most * 10
  until at_most > entries_n * 10
  return redis.call('XTRIM', stream, strategy, '=', bound)
end

local function id_before(milliseconds)
  local time = redis.call('TIME')
  return string.format('%.0f-0', math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - milliseconds))
end

local removed, unread, state = 0, 0, 'present'
if mode == 'acked' then
  for i = 4, #ARGV do
    if not names[ARGV[i]] then
      state = 'waits'
    end
  end
  if not safe then
    state = 'waits'
  elseif state == 'present' then
    local bound = id_before(value)
    removed = trim('MINID', is_before(safe, bound) and safe or bound)
  end
elseif mode == 'age' then
  local bound = id_before(value)
  if safe and is_before(safe, bound) then
    -- First what is safe; then what is not, which is counted.
    removed = trim('MINID', safe)
    if removed == 0 then
      removed = trim('MINID', bound)
      unread = removed
    else
      is_more = 1
    end
  else
    removed = trim('MINID', bound)
  end
elseif mode == 'maxlen' then
  -- While there is something safe to remove, what is not safe is looked at before and after; as much of it as may be removed now.
  local not_safe = {}
  local is_all_unread = false
  if safe and redis.call('XLEN', stream) > value then
    is_all_unread = not is_before(first, safe)
    if not is_all_unread then
      not_safe = redis.call('XRANGE', stream, safe, '+', 'COUNT', 200)
      limit = #not_safe > 0 and 200 or limit
    end
  end
  removed = trim('MAXLEN', ARGV[2])
  if is_all_unread then
    unread = removed
  elseif removed > 0 and #not_safe > 0 then
    first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
    while unread < #not_safe and is_before(not_safe[unread + 1][1], first) do
      unread = unread + 1
    end
    -- Nodes larger than what was looked at: rather too many than too few.
    unread = unread == 200 and removed or unread
  end
end

if index and pending_n == 0 and redis.call('XLEN', stream) == 0 then
  redis.call('ZREM', index, stream)
  state = 'empty'
end
return {removed, unread, is_more, state}
