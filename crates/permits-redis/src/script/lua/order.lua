-- The order of the queue, in the general course.

-- Forgets the records that an ordinary course has read: their key may have vanished.
records, changed, bounds = {}, {}, { of = {}, changed = {}, unsettled = {} }

-- After a loss of other keys the pins are left, and nothing is held.
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

-- The same with lanes, and their lanes and the progress of these behind each grant.
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

-- Returns true if a waiter is in line: its lane is not full.
local function in_line()
  return s.waiting > 0 and (lanes == 0 or bounded_lanes == 0 or redis.call('ZCOUNT', lanes_key, 0, '($FULL') > 0)
end

-- Returns true if a waiter is before a newcomer of this weight in a lane with these bounds, if it has any:
-- one that is in line, unless the lane of the newcomer is short and no other is.
local function is_behind(bounded, weight)
  if not bounded or side_for(bounded, weight) ~= 'short' then return in_line() end
  return lanes > 0 and read_first_short()[1] ~= nil
end
