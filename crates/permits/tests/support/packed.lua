-- Reads what the scripts have packed, and writes it as texts: KEYS[1] a state or entries key, ARGV[1] which of them.
-- Returns field, value, … as HGETALL does.
local function text(number) return string.format('%.0f', number) end
local read = {}

if ARGV[1] == 'state' then
  local names = { 'sequence', 'held', 'last_token', 'last_ticket', 'slots_made', 'earliest', 'limit', 'limit_version',
    'pinned', 'paused', 'checked', 'era_known', 'era_began', 'recovering_until', 'lease_max', 'expires', 'server' }
  for _, packed in ipairs(redis.call('HVALS', KEYS[1])) do
    local values = { struct.unpack('<dddddddddddddddds', packed) }
    if values[#values] ~= #packed + 1 then return redis.error_reply('more than a state') end
    for i, name in ipairs(names) do
      read[#read + 1] = name
      read[#read + 1] = type(values[i]) == 'number' and text(values[i]) or values[i]
    end
  end
else
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local token, slot, weight, lease, request, session, behind = struct.unpack('<dI4I4I4ss', all[i + 1])
    if behind ~= #all[i + 1] + 1 then return redis.error_reply('more than an entry') end
    local words = { request, session, text(weight), text(lease) }
    if token > 0 then words[5], words[6] = text(token), text(slot) end
    read[#read + 1] = all[i]
    read[#read + 1] = table.concat(words, ' ')
  end
end
return read
