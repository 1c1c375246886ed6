-- The order of the queue, in the general course.

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

-- The waiters that are granted next, at most `max`, with known entries.
local function heads_of_queue(max)
  local heads = redis.call('ZRANGE', queue_key, 0, max - 1)
  find(heads)
  return heads
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

-- Returns true if a waiter stands before a newcomer of this weight; `bounded` has the bounds of its lane, or
-- is nil. A newcomer in a short lane is behind the waiters of short lanes only, and any other newcomer is
-- behind every waiter in line.
local function is_behind(bounded, weight)
  if not bounded or side_for(bounded, weight) ~= 'short' then return in_line() end
  return lanes > 0 and read_first_short()[1] ~= nil
end
