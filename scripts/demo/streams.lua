-- Every entry of every stream whose name matches ARGV[1]: "account <tab> position in its stream <tab> payload".
local lines = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  for position, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
    local fields = entry[2]
    -- message_id, aggregate_type, aggregate_id, event_type, payload: names and values in turns
    lines[#lines + 1] = fields[6] .. '\t' .. position .. '\t' .. fields[10]
  end
end
return lines
