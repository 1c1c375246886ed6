-- Slots. A member of free is a range, 'first-last', by its first. Slots 0 to slots_made - 1 are in use or free.
-- When nothing is held all slots are forgotten, so a mutex never touches the set.

local given_back, sorted = {}, true   -- slots that this command freed; whether the highest are first
local lowest, taken = {}, 0   -- the set's lowest ranges, as far as they were read; how many of them it took
local range                   -- the range that it is taking from; false when there is none

local LOWEST = 16   -- how many ranges are read at once

local function recovering() return now_ms < s.recovering_until end

local function lowest_given_back()
  if not sorted then table.sort(given_back, function(a, b) return a > b end) end
  sorted = true
  return given_back[#given_back]
end

-- Whether there is a slot to grant. While recovering only one that this command freed will do: others may be
-- those of holders which the store forgot, and which could then not be put back.
local function slot_left()
  return not recovering() or (lowest_given_back() or math.huge) < s.limit
end

-- The lowest free slot. Nothing is written before finish: see `write`.
local function take_lowest_slot()
  local back = lowest_given_back()
  if recovering() then return table.remove(given_back) end
  if range == nil then
    if taken == #lowest then
      local more = redis.call('ZRANGE', free_key, taken, taken + LOWEST - 1)
      for _, member in ipairs(more) do lowest[#lowest + 1] = member end
    end
    range = false
    if taken < #lowest then
      taken = taken + 1
      local first, last = string.match(lowest[taken], '^(%d+)-(%d+)$')
      range = { first = tonumber(first), last = tonumber(last) }
    end
  end
  if range and not (back and back < range.first) then
    local slot = range.first
    range.first = slot + 1
    if range.first > range.last then range = nil end
    return slot
  end
  if back then return table.remove(given_back) end
  s.slots_made = s.slots_made + 1
  return s.slots_made - 1
end

-- Takes this very slot if it is free. Only before any take_lowest_slot of the same command.
local function take_slot(slot)
  local function keep(first, last)
    if first <= last then
      redis.call('ZADD', free_key, first, string.format('%.0f-%.0f', first, last))
      touched[free_key] = true
    end
  end
  if slot >= s.slots_made then
    keep(s.slots_made, slot - 1)
    s.slots_made = slot + 1
    return true
  end
  for i, back in ipairs(given_back) do
    if back == slot then return table.remove(given_back, i) end
  end
  local found = redis.call('ZREVRANGEBYSCORE', free_key, slot, '-inf', 'LIMIT', 0, 1)[1]
  local first, last = string.match(found or '', '^(%d+)-(%d+)$')
  if not found or slot > tonumber(last) then return false end
  redis.call('ZREM', free_key, found)
  keep(tonumber(first), slot - 1)
  keep(slot + 1, tonumber(last))
  return true
end

-- Writes the slots that this command gave back or split.
local function put_slots_back()
  if taken > 0 then redis.call('ZREM', free_key, unpack(lowest, 1, taken)) end
  local members = {}
  local function keep(first, last)
    members[#members + 1] = first
    members[#members + 1] = string.format('%.0f-%.0f', first, last)
  end
  if range then keep(range.first, range.last) end
  for _, slot in ipairs(given_back) do keep(slot, slot) end
  given_back, lowest, taken, range = {}, {}, 0, nil
  if #members > 0 then
    redis.call('ZADD', free_key, unpack(members))
    touched[free_key] = true
  end
end

local function write_slots()
  if s.held > 0 then return put_slots_back() end
  if taken > 0 or s.slots_made > #given_back then redis.call('DEL', free_key) end
  s.slots_made = 0
end
