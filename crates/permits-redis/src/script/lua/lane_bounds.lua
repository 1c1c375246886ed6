-- The bounds of lanes, as in model/queue.rs of permits-core. While `s.bounded`, the number of lanes with a
-- limit or a floor, is not 0, a field of the state, a tab, '#' and the name of such a lane, has its limit and
-- its floor, 0 without one, and the units that its requests hold. A lane that is full has as its score its
-- progress times $FULL, so it is behind all others; one that is short has its progress times $SHORT, and is
-- before all others.

-- By name, as far as they were read, false without a limit; the names of those to write; and of those of
-- which it is to be checked whether they are short or full.
local bounds = { of = {}, changed = {}, unsettled = {} }

-- The bounds of a lane and what it holds, or nil.
local function bounds_of(name)
  if s.bounded == 0 or name == '' then return end
  if bounds.of[name] == nil then
    local found = redis.call('HGET', state_key, string.format('\t#%s', name))
    bounds.of[name] = found and {}
    if found then bounds.of[name].limit, bounds.of[name].floor, bounds.of[name].held = struct.unpack('<ddd', found) end
  end
  return bounds.of[name] or nil
end

-- Returns true if a request of this weight has to wait until others of its lane have left. One that never
-- fits is no reason to wait.
local function is_full_for(bounded, weight)
  return weight <= bounded.limit and bounded.held + weight > bounded.limit
end

-- Where a lane stands if a request of this weight is its head. Its limit wins over its floor.
local function side_for(bounded, weight)
  return is_full_for(bounded, weight) and 'full' or bounded.held < bounded.floor and 'short' or 'fair'
end

-- Notes that a lane has another head.
local function note_change(name)
  if bounds_of(name) then bounds.unsettled[name] = true end
end

-- Notes that a lane holds so many units more, of a grant that counts for its bounds.
local function count_in_lane(name, of_lane, units)
  local bounded = of_lane and bounds_of(name)
  if not bounded then return end
  bounded.held, bounds.changed[name], bounds.unsettled[name] = bounded.held + units, true, true
end

-- Counts a new grant, also one that does not name the bounds of its lane.
local function count_grant(holder)
  local token, slot, weight, lease, request, from, label, at_least, version, keeps, lane, share, key, _, of_lane = parts(holder, known[holder])
  local bounded = bounds_of(lane)
  if not bounded then return end
  if not of_lane then
    put(holder, pack(holder, weight, lease, request, from, label, at_least, version, token, slot, keeps, lane, share, key, struct.pack('<I4I4', bounded.limit, bounded.floor)))
  end
  count_in_lane(lane, true, weight)
end

-- The bounds that count for a request: those that it names, unless those in force count, or those of its
-- lane, with what that holds; nil without any. And the lane.
local function bounds_for(holder, entry, in_force)
  if s.bounded == 0 and not names_bounds(entry) then return end
  local _, _, _, _, _, _, _, _, _, _, lane, _, _, _, of_lane = parts(holder, entry)
  local bounded = bounds_of(lane)
  if of_lane and not (in_force and bounded) then
    local limit, floor = struct.unpack('<I4I4', of_lane)
    local was = bounded or { limit = 0, floor = 0, held = 0 }
    bounded = { limit = limit > 0 and limit or was.limit, floor = floor > 0 and floor or was.floor, held = was.held }
  end
  return bounded, lane
end

-- Puts the bounds that a request names in force.
local function declare_lane(holder, entry)
  if not names_bounds(entry) then return end
  local wanted, lane = bounds_for(holder, entry)
  if not bounds_of(lane) then s.bounded = s.bounded + 1 end
  bounds.of[lane], bounds.changed[lane], bounds.unsettled[lane] = wanted, true, true
end
