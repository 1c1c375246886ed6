-- The bounds of lanes, as in model/queue.rs of permits-core. Each lane with a limit or a floor has a field of
-- the state: a tab, '#' and the name of the lane. The field has the limit and the floor (0 without one), the
-- units that count for them, and one byte more if an operator has pinned the lane. `bounded_lanes` is the
-- number of these lanes. The score of a full lane is its progress times $FULL, so it is behind all others;
-- the score of a short lane is its progress times $SHORT, so it is before all others. Another field has the
-- names of all pinned lanes.

-- The bounds by name, as far as they were read (false without bounds); the names of bounds to write; and the
-- names of lanes that may have become short or full, or ceased to be.
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

-- Returns true if a request of this weight has to wait until other holders of its lane have left. A request
-- heavier than the limit never fits, so it does not wait.
function is_full_for(bounded, weight)
  return weight <= bounded.limit and bounded.held + weight > bounded.limit
end

-- The side on which a lane stands if a request of this weight is its head. The limit wins over the floor.
function side_for(bounded, weight)
  return is_full_for(bounded, weight) and 'full' or bounded.held < bounded.floor and 'short' or 'fair'
end

-- Notes that a lane has another head.
function note_change(name)
  if bounds_of(name) then bounds.unsettled[name] = true end
end

-- Counts units that a lane holds more, or fewer if negative, if their grant counts for its bounds.
function count_in_lane(name, of_lane, units)
  local bounded = of_lane and bounds_of(name)
  if not bounded then return end
  bounded.held, bounds.changed[name], bounds.unsettled[name] = bounded.held + units, true, true
end
