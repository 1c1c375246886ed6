-- The ordinary course of release in a line with bounds of lanes: one permit, whose units go to at most one
-- waiter. Describes that waiter in `in_bounds`, as next_of_lanes returns it; without `heads` if nobody gets
-- the units.

-- The entries of the first two waiters of a lane by its name, as far as they were read.
local first_two = {}
local function read_first_two(name)
  local record = record_of(name)
  local waiters = redis.call('ZRANGEBYSCORE', queue_key, first_ticket(name, record.number), '+inf', 'LIMIT', 0, math.min(record.waiting, 2))
  first_two[name] = redis.call('HMGET', state_key, unpack(waiters))
  return waiters, first_two[name]
end

function head_weight(name)
  return (struct.unpack('<I4', (first_two[name])[1], 2))
end

-- Hands the units over: takes the waiter out of the queue of its lane, counts its grant, and puts its lane
-- and the lane of the permit into their places.
function grant_in_bounds(name, entry)
  settle()
  local score = tonumber(redis.call('ZSCORE', lanes_key, member_of(name, record_of(name).number)))
  leave(name, 1, score + cost_of(entry) * (score < 1 and $SHORT or 1))
  if bounds_of(name) then count_in_lane(name, true, struct.unpack('<I4', entry, 2)) end
  table.remove(first_two[name], 1)
  settle(true)
  write_bounds(fields, named)
  if in_bounds.freed then
    local lowest = string.format('%.0f', freed[1])
    redis.call('ZADD', free_key, in_bounds.freed, in_bounds.freed)
    redis.call('ZREM', free_key, lowest)
  end
end

local name, counts = lane_of(found[2]), names_bounds(found[2])
local bounded, waits = bounds_of(name), lanes > 0 and record_of(name)
ordinary = count == 1 and (not counts or bounded)
  and (waiting == 0 or lanes > 0 and redis.call('EXISTS', lanes_key) == 1 and redis.call('ZCARD', queue_key) == waiting)
if ordinary then
  in_bounds = {}
  if counts then count_in_lane(name, true, -struct.unpack('<I4', found[2], 2)) end
end
if ordinary and waiting > 0 then
  local first = redis.call('ZRANGEBYSCORE', lanes_key, 0, '($FULL', 'WITHSCORES', 'LIMIT', 0, 1)
  local takes, waiters, entries = first[1] and string.sub(first[1], 7), nil, nil
  if counts and waits then
    waiters, entries = read_first_two(name)
    local before = side_of(tonumber(redis.call('ZSCORE', lanes_key, member_of(name, waits.number))))
    local side = side_for(bounded, head_weight(name))
    -- The lane of the permit may change its side. It gets the units if no lane was in line, or if it is short
    -- now and the first lane is not. Otherwise it stands behind the first lane.
    if side ~= before and (not takes or side == 'short' and tonumber(first[2]) >= 1) then takes = name end
  end
  if takes then
    if takes ~= name or not waiters then waiters, entries = read_first_two(takes) end
    local flags, weight = struct.unpack('<BI4', entries[1])
    local of_taking = bounds_of(takes)
    in_bounds.heads, in_bounds.entries, in_bounds.names = { waiters[1] }, { entries[1] }, { takes }
    -- The units that are left must not fit another waiter. If no lane was in line before, only the next
    -- waiter of this lane could take them.
    local room, after = limit - held, entries[2] and struct.unpack('<I4', entries[2], 2)
    local is_last = weight == room or not first[1] and weight < room
      and (not after or is_full_for({ limit = of_taking.limit, held = of_taking.held + weight }, after))
    ordinary = is_last and flags % 4 == 0 and not fault_of(entries[1])
      and not (entries[2] and fault_of(entries[2])) and weight <= limit
      and not (of_taking and (not names_bounds(entries[1]) or of_taking.limit > 0 and weight > of_taking.limit))
    if ordinary and free > 0 then
      -- A grant takes the lowest free slot.
      local lowest = tonumber(redis.call('ZRANGE', free_key, 0, 0)[1])
      if not lowest then ordinary = false elseif lowest < freed[1] then in_bounds.freed, freed[1] = freed[1], lowest end
    end
  end
end
