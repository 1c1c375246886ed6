-- The waiters that are granted next, lane by lane, and their leaving: see lanes.

-- The µs at which a waiter was queued.
local function queued_at(holder, entry)
  local flags = string.byte(entry)
  if flags % 16 < $LANED then return redis.call('ZSCORE', queue_key, holder) end
  return (struct.unpack('<d', entry, $ENTRY_BYTES + (flags % 4 >= $TIMES and $TIMES_BYTES or 0) + $SHARE_BYTES + 1))
end

-- The first lanes in order: name, number, progress, the waiters from the first ticket on, the index of the
-- next waiter, and the place before these waiters in the second result, which has the fields of the waiters
-- and of each lane.
local function first_lanes(max)
  local found, first, asked = redis.call('ZRANGEBYSCORE', lanes_key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, max), {}, {}
  for i = 1, #found, 2 do
    local number, name = tonumber(string.sub(found[i], 1, 6)), string.sub(found[i], 7)
    local waiters = redis.call('ZRANGEBYSCORE', queue_key, first_ticket(name, number), '+inf', 'LIMIT', 0, max)
    first[#first + 1] = { name = name, number = number, progress = tonumber(found[i + 1]), waiters = waiters, at = 1, asked = #asked }
    for _, waiter in ipairs(waiters) do asked[#asked + 1] = waiter end
    asked[#asked + 1] = string.format('\t:%s', name)
  end
  return first, asked
end

-- The progress that a grant is for its lane.
local function cost_of(entry)
  local flags, weight = struct.unpack('<BI4', entry)
  return flags % 16 < $LANED and weight or weight / (struct.unpack('<I2', entry, $ENTRY_BYTES + 1 + (flags % 4 >= $TIMES and $TIMES_BYTES or 0)) % $BOUNDED)
end

-- The waiters that are granted next while each fits, at most `max`, with waiters of full lanes last; their
-- entries; their lanes; and the scores of the lanes after each grant. No lane behind the first `max` can have
-- one of these waiters.
local function next_of_lanes(max)
  local first, asked = first_lanes(max)
  if #asked == 0 then return {}, {}, {}, {} end
  local found, heads, entries, names, progress = redis.call('HMGET', state_key, unpack(asked)), {}, {}, {}, {}
  local waiting = 0
  for _, lane in ipairs(first) do
    lane.waiting = math.min(record_of(lane.name, found[lane.asked + #lane.waiters + 1]).waiting, #lane.waiters)
    waiting = waiting + lane.waiting
  end
  for k = 1, math.min(max, waiting) do
    local least = nil
    for _, lane in ipairs(first) do
      if lane.at <= lane.waiting and (not least or lane.progress < least.progress
        or lane.progress == least.progress and lane.number < least.number) then least = lane end
    end
    heads[k], entries[k], names[k] = least.waiters[least.at], found[least.asked + least.at], least.name
    least.at, least.progress = least.at + 1, least.progress + cost_of(entries[k]) * (least.progress >= $FULL and $FULL or least.progress < 1 and $SHORT or 1)
    progress[k] = least.progress
  end
  return heads, entries, names, progress
end

-- Notes that `left` waiters of a lane have left the queue, and its progress, if a grant has changed it.
local function leave(name, left, progress)
  local record = record_of(name)
  local member = member_of(name, record.number)
  record.waiting = record.waiting - left
  change_lane(name, record.waiting > 0 and record)
  if record.waiting > 0 then
    if progress then redis.call('ZADD', lanes_key, text_of(progress), member) end
    return
  end
  lanes = lanes - 1
  if lanes == 0 then
    last_lane = 0
    redis.call('UNLINK', lanes_key)
    return
  end
  local side
  side, progress = side_of(progress or tonumber(redis.call('ZSCORE', lanes_key, member)))
  -- Units that a short lane gets are not charged to its share.
  if side == 'short' then progress = record.other end
  redis.call('ZREM', lanes_key, member)
  if progress > 1 then redis.call('ZADD', lanes_key, text_of(-progress), string.format('-%s', name)) end
end
