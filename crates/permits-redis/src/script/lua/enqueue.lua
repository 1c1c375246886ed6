-- New waiters. Before acquire.

-- Positions and tickets of new waiters; the tickets that are not written yet, flat as ZADD takes them.
local positions, tickets = {}, {}

local function write_tickets()
  if #tickets > 0 then redis.call('ZADD', queue_key, unpack(tickets)) end
  tickets = {}
end

-- Adds a waiter to the queue. Returns 'waiting' and its position, or the reason of a refusal.
local function enqueue(holder, entry, lease)
  local lane, ticket, position = lane_of(entry), math.max(now_us, s.last_ticket + 1), s.waiting
  if lanes == 0 and lane ~= '' then s.created[lanes_key] = true end
  if bounded_lanes > 0 then first_lane = nil end   -- another may have become the first
  if lanes > 0 or lane ~= '' then ticket, position = join(lane, ticket, s.waiting) end
  if not ticket then return 'queue_full', 0 end
  if lane == '' then s.last_ticket = ticket end
  if s.waiting == 0 then s.created[queue_key] = true end
  positions[holder], s.waiting = position, s.waiting + 1
  tickets[#tickets + 1], tickets[#tickets + 2] = ticket, holder
  put(holder, set_queued(entry, now_us))
  extend(holder, lease, false)
  -- The head of lanes and a place in them are read from what is written.
  if lanes > 0 then write_tickets() end
  return 'waiting', position
end

-- Notes a newcomer of a lane with bounds, which may be the first. Returns true if its bounds were put in
-- force only now, since it was not let in before the promotion.
local function declare_new_lane(holder, entry, k)
  local is_late = not let_in[k] and names_bounds(entry)
  if is_late then declare_lane(holder, entry) end
  note_change(lane_of(entry))
  return is_late
end

-- Grants what fits, which may be a newcomer. Returns the answer to its request.
local function promote_with(holder)
  write_tickets()
  positions = {}
  -- Heads are read from what is written.
  write()
  promote()
  first_lane = nil   -- its waiters may be gone
  local token, slot = parts(holder, known[holder])
  if token > 0 then return 'granted', token, slot end
  return 'waiting', place_of(holder, known[holder], s.waiting - 1), 0
end

-- Removes a waiter that is superseded. The waiter that supersedes it is the last one of its lane, and gets
-- the place of the other if that is in the same lane. Grants what fits. Returns the answer to the request.
local function supersede(old, holder, key)
  write_tickets()
  positions = {}
  local before, entry = known[old], known[holder]
  local _, _, _, _, request, from = parts(old, before)
  local place, queued = redis.call('ZSCORE', queue_key, old), queued_at(old, before)
  emit(from, string.format('superseded %s %s', request, old))
  s.refused = s.refused + 1
  forget({ old })
  if lane_of(before) == lane_of(entry) then
    redis.call('ZADD', queue_key, place, holder)
    put(holder, set_queued(entry, queued))
  end
  s.by_key[key] = holder
  return promote_with(holder)
end
