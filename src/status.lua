-- What `outboxd status` wants to know of a lane's stream, without having its entries sent.  KEYS[1] the stream, ARGV[1] entries to look at.
-- Returns its type ("none" when there is no such key), and of a stream: length, last id, entries ever added (-1: this Redis does not say); of its newest
-- entries, at most ARGV[1], how many are less than a minute old, how many there are, and the milliseconds since the oldest of them.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'stream' then
  return {kind}
end
local info = redis.call('XINFO', 'STREAM', KEYS[1])
local about = {}
for i = 1, #info, 2 do
  about[info[i]] = info[i + 1]
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])
local minute_n = 0
local oldest_ms = 0
for _, entry in ipairs(newest) do
  local ms = now_ms - tonumber(string.match(entry[1], '^%d+'))
  if ms < 60000 then
    minute_n = minute_n + 1
  end
  oldest_ms = ms
end
return {kind, about['length'], about['last-generated-id'], about['entries-added'] or -1, minute_n, #newest, oldest_ms}
