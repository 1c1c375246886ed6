-- Reads the packed values of the scripts, and returns them as texts: KEYS[1] a state or entries key, ARGV[1] 'state' or
-- 'entries'.
-- Returns field, value, … as HGETALL does.
local function text(number) return string.format('%.0f', number) end
local read = {}

if ARGV[1] == 'state' then
  local names = { 'sequence', 'held', 'holders', 'waiting', 'last_token', 'last_ticket', 'slots_made', 'earliest', 'limit', 'limit_version',
    'pinned', 'paused', 'checked', 'era_known', 'era_began', 'recovering_until', 'lease_max', 'expires', 'server' }
  local fields = redis.call('HGETALL', KEYS[1])
  for f = 1, #fields, 2 do
    if fields[f] ~= '1' and fields[f] ~= 'changes' then return redis.error_reply('a field ' .. fields[f]) end
  end
  local packed = redis.call('HGET', KEYS[1], '1')
  if packed then
    local values = { struct.unpack('<dddddddddddddddddds', packed) }
    if values[#values] ~= #packed + 1 then return redis.error_reply('more than a state') end
    for i, name in ipairs(names) do
      read[#read + 1] = name
      read[#read + 1] = type(values[i]) == 'number' and text(values[i]) or values[i]
    end
    read[#read + 1] = 'changes'
    read[#read + 1] = redis.call('HGET', KEYS[1], 'changes') or ''
  elseif #fields > 0 then
    return redis.error_reply('changes without a state')
  end
else
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local token, slot, weight, lease, request, session, label, behind = struct.unpack('<dI4I4I4sss', all[i + 1])
    if behind ~= #all[i + 1] + 1 then return redis.error_reply('more than an entry') end
    local words = { request, session, text(weight), text(lease) }
    if token > 0 then words[5], words[6] = text(token), text(slot) end
    words[#words + 1] = label
    read[#read + 1] = all[i]
    read[#read + 1] = table.concat(words, ' ')
  end
end
return read
