-- The order of the queue, in the general course.

-- Forgets the records that an ordinary course has read: their key may have vanished.
records, changed = {}, {}

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
