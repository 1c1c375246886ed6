-- The order of the queue, and what a grant counts for, in the general course.

-- Forgets the records that an ordinary course has read: their key may have vanished.
records, changed, bounds = {}, {}, { of = {}, changed = {}, unsettled = {} }

-- A loss of other keys leaves the pins, but the lanes hold nothing any more.
for name, found in pairs(s.pins_left or {}) do
  bounds.of[name], bounds.changed[name] = unpack_bounds(found), true
  bounds.of[name].held = 0
end

function head_weight(name, record)
  local head = redis.call('ZRANGEBYSCORE', queue_key, first_ticket(name, record.number), '+inf', 'LIMIT', 0, 1)
  find(head)
  return (struct.unpack('<I4', known[head[1]], 2))
end

-- Adds the waiters that are granted next after these, at most `max`, with known entries.
local function add_heads(heads, max)
  local more = redis.call('ZRANGE', queue_key, #heads, #heads + max - 1)
  find(more)
  for _, holder in ipairs(more) do heads[#heads + 1] = holder end
  return heads
end

-- The waiters that are granted next, at most `max`, with known entries.
local function heads_of_queue(max)
  return add_heads({}, max)
end

-- The same with lanes. Also returns the lanes of these waiters, and the scores of the lanes after each grant.
local function heads_of_lanes(max)
  local heads, entries, names, progress = next_of_lanes(max)
  for k, head in ipairs(heads) do
    if fault_of(entries[k]) then error(fault_of(entries[k])) end
    known[head] = entries[k]
  end
  return heads, names, progress
end

-- Counts a new grant, even if it does not name the bounds of its lane.
local function count_grant(holder)
  local token, slot, weight, lease, request, from, label, at_least, version, keeps, lane, share, key, _, of_lane = parts(holder, known[holder])
  local bounded = bounds_of(lane)
  if not bounded then return end
  if not of_lane then
    put(holder, pack(holder, weight, lease, request, from, label, at_least, version, token, slot, keeps, lane, share, key, struct.pack('<I4I4', bounded.limit, bounded.floor)))
  end
  count_in_lane(lane, true, weight)
end

-- The µs at which the head of the queue was queued.
local function head_queued()
  if lanes == 0 then return redis.call('ZRANGE', queue_key, 0, 0, 'WITHSCORES')[2] end
  local head = heads_of_lanes(1)[1]
  return queued_at(head, known[head])
end

-- Returns true if a waiter is in line, so that it gets the next units when it fits. Waiters of full lanes are
-- not in line.
local function in_line()
  return s.waiting > 0 and (lanes == 0 or bounded_lanes == 0 or redis.call('ZCOUNT', lanes_key, 0, '($FULL') > 0)
end

-- Returns true if a request waits in this lane.
local function waits_in(name)
  return lanes > 0 and record_of(name) ~= nil
end

-- Returns true if a waiter stands before a newcomer of this weight; `bounded` has the bounds of its lane, or
-- is nil. A newcomer in a short lane is behind the waiters of short lanes only, and any other newcomer is
-- behind every waiter in line.
local function is_behind(bounded, weight)
  if not bounded or side_for(bounded, weight) ~= 'short' then return in_line() end
  return lanes > 0 and read_first_short()[1] ~= nil
end
