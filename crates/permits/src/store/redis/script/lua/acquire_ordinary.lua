-- The ordinary course of acquire: no request is known. With waiters only if all units are held, since then
-- none of them can be granted first.
if ordinary and stored == 0 and (waiting == 0 or held >= limit) then
  local queue_max, waits = tonumber(ARGV[8]), ARGV[9]
  local leases_before, free, refused_before = holders + waiting, slots_made - holders, refused
  -- The free slots that may be granted. A range of several is left to the general course.
  local free_slots, wanted = {}, waiting == 0 and math.min(free, count, limit - held) or 0
  if wanted > 0 then
    free_slots = redis.call('ZRANGE', free_key, 0, wanted - 1)
    ordinary = #free_slots == wanted
    for _, slot in ipairs(free_slots) do ordinary = ordinary and tonumber(slot) ~= nil end
  end

  -- Decides on each request, in order. An answer is a tag and two values.
  local granted_free, queued, soonest = 0, 0, math.huge
  local leases, tickets = { nil, nil }, {}   -- flat, as ZADD takes them
  local score_of, score = nil, nil           -- a deadline as a text: most of a batch share one
  for k = 1, ordinary and count or 0 do
    local holder, entry = named[k], given[k]
    local weight, lease = struct.unpack('<I4I4', entry, 2)
    local tag, first, second, ends = nil, 0, 0, now_ms + lease
    if waiting + queued == 0 and held + weight <= limit then
      local slot = tonumber(free_slots[granted_free + 1])
      if slot then granted_free = granted_free + 1 else slot, slots_made = slots_made, slots_made + 1 end
      last_token, held, holders, grants = math.max(now_us, last_token + 1), held + weight, holders + 1, grants + 1
      entry = struct.pack('<Bc0dI4', string.byte(entry) + 1, string.sub(entry, 2), last_token, slot)
      tag, first, second = 'granted', last_token, slot
    elseif weight > limit then
      tag = 'exceeds_limit'
    elseif string.sub(waits, k, k) == '0' then
      tag = 'no_permits'
    elseif waiting + queued >= queue_max then
      tag = 'queue_full'
    else
      if string.byte(entry) % 16 >= LANED then ordinary = false; break end
      last_ticket = math.max(now_us, last_ticket + 1)
      tickets[#tickets + 1], tickets[#tickets + 2] = last_ticket, holder
      tag, first, queued, ends = 'waiting', waiting + queued, queued + 1, -ends
    end
    if tag == 'granted' or tag == 'waiting' then
      if ends ~= score_of then
        score_of, score, soonest = ends, string.format('%.0f', ends), math.min(soonest, now_ms + lease)
      end
      leases[#leases + 1], leases[#leases + 2] = score, holder
      fields[#fields + 1], fields[#fields + 2] = holder, entry
    else
      refused = refused + 1
    end
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = tag, first, second
  end
  -- A recall is left to the general course. The end of the next lease; and that no key has vanished.
  if now_ms < kept_until and (refused > refused_before or waiting == 0 and queued > 0) then ordinary = false end
  if ordinary and queued > 0 and leases_before > 0 then
    -- Of the leases that were there, the waiter's and the holder's that end first are neighbours.
    local from, to = math.max(waiting - 1, 0), leases_before > waiting and waiting or waiting - 1
    local there = redis.call('ZRANGE', leases_key, from, to, 'WITHSCORES')
    ordinary, earliest = #there == 2 * (to - from + 1), soonest
    for i = 2, #there, 2 do earliest = math.min(earliest, math.abs(there[i])) end
  elseif ordinary then
    earliest = leases_before > 0 and math.min(earliest, soonest) or soonest
    ordinary = leases_before == 0 and queued == 0 or redis.call('ZCARD', leases_key) == leases_before
  end
  ordinary = ordinary and (waiting == 0 or redis.call('ZCARD', queue_key) == waiting)
    and (free == 0 or wanted > 0 or redis.call('EXISTS', free_key) == 1)

  -- Writes. The first may grow: there a server out of memory refuses the batch.
  if ordinary then
    if queued > 0 then
      reply[RECHECK] = math.max(1, turn(earliest, waiting, waiting, holders) - now_ms)
      redis.call('ZADD', queue_key, unpack(tickets))
      if waiting == 0 and pinned == 0 then redis.call('PEXPIREAT', queue_key, expires) end
    end
    if #leases > 0 then redis.call('ZADD', leases_key, unpack(leases)) end
    if #leases > 0 and leases_before == 0 and pinned == 0 then redis.call('PEXPIREAT', leases_key, expires) end
    if granted_free > 0 then redis.call('ZREM', free_key, unpack(free_slots, 1, granted_free)) end
    waiting, decided = waiting + queued, true
  end
end
