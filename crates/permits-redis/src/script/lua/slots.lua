-- Slots. Slots 0 to slots_made - 1 are in use or free. A member of free is a range of them by its first:
-- 'first-last', or the number alone. When nothing is held all slots are forgotten, so a mutex never touches
-- the set.

local slots = {
  freed = {}, sorted = true,  -- freed by this command, negative: sorted upwards, the lowest is the last
  ranges = {}, taken = 0,     -- the set's lowest ranges, as far as they were read; the number of those taken
  first = nil, last = nil }   -- the rest of the range that is being taken from

local function read_range(member)
  local single = tonumber(member)
  if single then return single, single end
  local first, last = string.match(member, '^(%d+)-(%d+)$')
  return tonumber(first), tonumber(last)
end

local function lowest_freed()
  if not slots.sorted then
    table.sort(slots.freed)
    slots.sorted = true
  end
  local lowest = slots.freed[#slots.freed]
  return lowest and -lowest
end

-- Returns true if there is a slot to grant. While recovering only a slot that this command freed is safe:
-- another may belong to a holder that the store forgot, and that could then not be put back.
local function slot_left(limit)
  return not s.recovering or (lowest_freed() or math.huge) < limit
end

-- The lowest free slot. Nothing is written before finish: see `write_slots`.
local function take_lowest_slot()
  local AT_ONCE = 32   -- ranges that are read
  local freed = lowest_freed()
  if s.recovering then return -table.remove(slots.freed) end
  if not slots.first then
    if slots.taken == #slots.ranges then
      local more = redis.call('ZRANGE', free_key, slots.taken, slots.taken + AT_ONCE - 1)
      for _, member in ipairs(more) do slots.ranges[#slots.ranges + 1] = member end
    end
    local member = slots.ranges[slots.taken + 1]
    if member then
      slots.taken = slots.taken + 1
      slots.first, slots.last = read_range(member)
    end
  end
  local first = slots.first
  if first and not (freed and freed < first) then
    slots.first = first < slots.last and first + 1 or nil
    return first
  end
  if freed then return -table.remove(slots.freed) end
  s.slots_made = s.slots_made + 1
  return s.slots_made - 1
end

-- A range as ZADD takes it, behind those in `members`.
local function add_range(members, first, last)
  if first > last then return end
  local score = string.format('%.0f', first)
  members[#members + 1] = score
  members[#members + 1] = first == last and score or string.format('%.0f-%.0f', first, last)
end

-- Writes ranges: those in `members`, and the slots that this command freed or split.
local function write_slots(members)
  if slots.taken > 0 then redis.call('ZREM', free_key, unpack(slots.ranges, 1, slots.taken)) end
  if slots.first then add_range(members, slots.first, slots.last) end
  for _, freed in ipairs(slots.freed) do add_range(members, -freed, -freed) end
  slots.freed, slots.ranges, slots.taken, slots.first = {}, {}, 0, nil
  if #members == 0 then return end
  redis.call('ZADD', free_key, unpack(members))
  s.created[free_key] = true
end
