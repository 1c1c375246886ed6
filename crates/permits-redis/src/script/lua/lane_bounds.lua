-- The bounds of lanes, as in model/queue.rs of permits-core. While `bounded_lanes`, the number of lanes with
-- a limit or a floor, is not 0, a field of the state, a tab, '#' and the name of such a lane, has its limit
-- and its floor, 0 without one, the units that its requests hold, and a byte more if an operator has pinned
-- it. A lane that is full has as its score its progress times $FULL, so it is behind all others; one that is
-- short has its progress times $SHORT, and is before all others. The names of all pinned lanes are another
-- field.

-- By name, as far as they were read, false without a limit; the names of those to write; and of those of
-- which it is to be checked whether they are short or full.
bounds = { of = {}, changed = {}, unsettled = {} }

-- The bounds of a lane as they are stored.
function unpack_bounds(found)
  local limit, floor, held = struct.unpack('<ddd', found)
  return { limit = limit, floor = floor, held = held, pinned = #found > 24 }
end

-- The bounds of a lane and what it holds, or nil.
function bounds_of(name)
  if bounded_lanes == 0 or name == '' then return end
  if bounds.of[name] == nil then
    local found = redis.call('HGET', state_key, string.format('\t#%s', name))
    bounds.of[name] = found and unpack_bounds(found)
  end
  return bounds.of[name] or nil
end

-- Returns true if a request of this weight has to wait until others of its lane have left. One that never
-- fits is no reason to wait.
function is_full_for(bounded, weight)
  return weight <= bounded.limit and bounded.held + weight > bounded.limit
end

-- Where a lane stands if a request of this weight is its head. Its limit wins over its floor.
function side_for(bounded, weight)
  return is_full_for(bounded, weight) and 'full' or bounded.held < bounded.floor and 'short' or 'fair'
end

-- Notes that a lane has another head.
function note_change(name)
  if bounds_of(name) then bounds.unsettled[name] = true end
end

-- Notes that a lane holds so many units more, of a grant that counts for its bounds.
function count_in_lane(name, of_lane, units)
  local bounded = of_lane and bounds_of(name)
  if not bounded then return end
  bounded.held, bounds.changed[name], bounds.unsettled[name] = bounded.held + units, true, true
end
