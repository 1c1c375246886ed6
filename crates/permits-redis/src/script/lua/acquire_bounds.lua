-- The ordinary course of acquire for one request in a line with bounds of lanes. Either its lane has no
-- bounds yet, or the request changes none of them.

-- Puts the bounds of the request in force, and counts its units.
function put_bounds(units)
  local bounded, name = in_bounds.bounded, in_bounds.name
  if not bounded then return end
  if in_bounds.is_new then bounded_lanes = bounded_lanes + 1 end
  bounded.held, bounds.of[name], bounds.changed[name] = bounded.held + units, bounded, units > 0 or in_bounds.is_new or nil
end

function head_weight()
  return (struct.unpack('<I4', given[1], 2))
end

local weight, name, at = struct.unpack('<I4', given[1], 2), lane_of(given[1])
local bounded, waits, is_new = bounds_of(name), lanes > 0 and record_of(name), false
if names_bounds(given[1]) then
  local lane_limit, floor = struct.unpack('<I4I4', given[1], at)
  if not bounded then
    -- New bounds of a lane that waits may let its waiters in, which the general course does.
    bounded, is_new, ordinary = { limit = lane_limit, floor = floor, held = 0 }, true, not waits
  elseif not bounded.pinned then
    ordinary = (lane_limit == 0 or lane_limit == bounded.limit) and (floor == 0 or floor == bounded.floor)
  end
else
  -- The general course gives the bounds of its lane to a grant that names no bounds.
  ordinary = not bounded
end
-- A refused request must not put its bounds in force, so the general course refuses it.
ordinary = ordinary and count == 1 and not (bounded and (weight > limit or bounded.limit > 0 and weight > bounded.limit))
if ordinary then
  in_bounds = { name = name, bounded = bounded, is_new = is_new,
    is_open = waiting == 0 or lanes > 0 and held < limit and redis.call('ZCOUNT', lanes_key, '$FULL', '+inf') == lanes,
    is_full = bounded and (is_full_for(bounded, weight) or waits) }
end
