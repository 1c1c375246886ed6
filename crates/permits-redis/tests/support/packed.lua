-- Reads a state key, with the packed state and the packed entries, and returns both as texts: field, value, …
-- as HGETALL does. KEYS[1] the key. ARGV[1] 'state' for the fields of the state, 'entries' for holders with
-- their entries.
local function text(number) return string.format('%.0f', number) end
local read = {}

local function state(packed)
  local names = { 'sequence', 'held', 'holders', 'waiting', 'last_token', 'last_ticket', 'slots_made', 'earliest', 'checked',
    'grants', 'refused', 'kept_until', 'lanes', 'last_lane', 'limit', 'limit_version', 'pin', 'paused', 'recovering_until', 'lease_max', 'expires', 'cools_until', 'bounded_lanes', 'cooling', 'era_known', 'era_began', 'expired', 'revoked', 'alert_wait', 'alert_waiting', 'server', 'waits' }
  if string.byte(packed) ~= 11 then return 'a state of another layout' end
  local values = { struct.unpack('<dddddddddddddddddddddddddddddds', packed, 2) }
  if values[#values] ~= #packed - 31 then return 'more or less than a state' end
  values[#values] = string.format('%.0f %d %d %d %d %d %d', struct.unpack('<dI4I4I4I4I4I4', packed, #packed - 31))
  for i, name in ipairs(names) do
    read[#read + 1] = name
    read[#read + 1] = type(values[i]) == 'number' and text(values[i]) or values[i]
  end
end

local function entry(holder, packed)
  local flags, weight, lease, request_bytes, session_bytes = struct.unpack('<BI4I4BB', packed)
  local rest, at_least, version = string.sub(packed, 12), 0, 0
  if math.floor(flags / 16) ~= 11 then error('an entry of another layout') end
  if flags % 4 >= 2 then
    at_least, version = struct.unpack('<I4I4', rest)
    rest = string.sub(rest, 9)
  end
  local keyed, key = at_least >= 2147483648, ''
  if keyed then at_least = at_least - 2147483648 end
  local share, queued, lane, lane_limit, lane_floor = 1, 0, '', 0, 0
  if flags % 16 >= 8 then
    share, queued = struct.unpack('<I2d', rest)
    rest = string.sub(rest, 11)
  end
  local function known_or_next(known)
    if known ~= '' then return known end
    local first = string.match(rest, '^(%Z+)%z')
    rest = string.sub(rest, #first + 2)
    return first
  end
  local request = known_or_next(string.sub(holder, #holder + 1 - request_bytes))
  local session = known_or_next(string.sub(request, 1, session_bytes))
  if flags % 16 >= 8 then
    lane = string.match(rest, '^(%Z*)%z')
    rest = string.sub(rest, #lane + 2)
    if share >= 32768 then
      share, lane_limit, lane_floor = share - 32768, struct.unpack('<I4I4', rest)
      rest = string.sub(rest, 9)
    end
  end
  if keyed then
    key = string.match(rest, '^(%Z+)%z')
    rest = string.sub(rest, #key + 2)
  end
  local words = { request, session, text(weight), text(lease), text(version), text(at_least), flags % 8 >= 4 and '1' or '0', text(share), text(lane_limit), text(lane_floor), text(queued) }
  if flags % 2 == 1 then
    local token, slot = struct.unpack('<dI4', string.sub(rest, -12))
    words[12], words[13], rest = text(token), text(slot), string.sub(rest, 1, -13)
  end
  words[#words + 1] = lane .. '\t' .. key .. '\t' .. rest
  read[#read + 1] = holder
  read[#read + 1] = table.concat(words, ' ')
end

local function record(name, other, number, next, waiting)
  return string.format('%.0f\t%.0f\t%.0f\t%.17g\t%s', number, next, waiting, other, name)
end

local fields, seen, changes, reason, lanes = redis.call('HGETALL', KEYS[1]), false, '', nil, {}
local keys, limits, pins = {}, {}, ''
local fault
for f = 1, #fields, 2 do
  local name, value = fields[f], fields[f + 1]
  if name == '\tstate' then
    seen = true
    if ARGV[1] == 'state' then fault = fault or state(value) end
  elseif name == '\tchanges' then
    changes = value
  elseif name == '\treason' then
    reason = value
  elseif name == '\tpins' then
    pins = value
  elseif string.find(name, '^\t:') then
    local other = #value > 24 and struct.unpack('<d', value, 25) or 1
    lanes[#lanes + 1] = record(string.sub(name, 3), other, struct.unpack('<ddd', value))
  elseif string.find(name, '^\t#') then
    if #value > 25 then fault = 'more than the bounds of a lane' end
    limits[#limits + 1] = string.format('%.0f\t%.0f\t%.0f\t', struct.unpack('<ddd', value)) .. #value - 24 .. '\t' .. string.sub(name, 3)
  elseif string.find(name, '^\t=') then
    keys[#keys + 1] = string.sub(name, 3) .. '\t' .. value
  elseif string.find(name, '%c') and not string.find(name, '^%C+\t%d+$') then
    fault = 'an unknown field'
  elseif ARGV[1] == 'entries' then
    entry(name, value)
  end
end
if #fields > 0 and not seen then fault = 'no state, and other fields' end
if fault then return redis.error_reply(fault) end
if seen and ARGV[1] == 'state' then
  read[#read + 1] = 'changes'
  read[#read + 1] = changes
  read[#read + 1] = 'reason'
  read[#read + 1] = reason or ''
  read[#read + 1] = 'records'
  read[#read + 1] = table.concat(lanes, '\n')
  read[#read + 1] = 'keys'
  read[#read + 1] = table.concat(keys, '\n')
  read[#read + 1] = 'pins'
  read[#read + 1] = pins
  read[#read + 1] = 'limits'
  read[#read + 1] = table.concat(limits, '\n')
end
return read
