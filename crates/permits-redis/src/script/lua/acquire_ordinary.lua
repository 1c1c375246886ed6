-- The ordinary course of acquire: no request is known to the store. It runs with waiters only if none of them
-- can be granted before a newcomer: all units are held, or the lanes of all waiters are full.
local leases_before, free, refused_before, free_slots, wanted
local granted_free, queued, soonest = 0, 0, math.huge
local leases, tickets, new = { nil, nil }, {}, nil   -- flat, as ZADD takes them; and with lanes, the numbers of those that wait
local is_open = waiting == 0 or in_bounds and in_bounds.is_open
local in_lanes = lanes > 0 or bounded_lanes > 0 or in_bounds ~= nil
if not in_lanes and string.byte(given[1]) % 16 >= $LANED then
  in_lanes = struct.unpack('<I2', given[1], $ENTRY_BYTES + 1 + (string.byte(given[1]) % 4 >= $TIMES and $TIMES_BYTES or 0)) >= $BOUNDED
end
if ordinary and in_lanes == knows_lanes and stored == 0 and #ARGV[9] == count and (is_open or held >= limit) then
  local queue_max, waits = tonumber(ARGV[8]), ARGV[9]
  leases_before, free, refused_before, new = holders + waiting, slots_made - holders, refused, lanes > 0 and {}
  -- The free slots that may be granted. A range of several is left to the general course.
  free_slots, wanted = {}, is_open and math.min(free, count, limit - held) or 0
  if wanted > 0 then
    free_slots = redis.call('ZRANGE', free_key, 0, wanted - 1)
    ordinary = #free_slots == wanted
    for _, slot in ipairs(free_slots) do ordinary = ordinary and tonumber(slot) ~= nil end
  end

  -- Decides on each request, in order. An answer is a tag and two values.
  local score_of, score = nil, nil           -- a deadline as a text: most of a batch share one
  for k = 1, ordinary and count or 0 do
    local holder, entry = named[k], given[k]
    local flags, weight, lease = struct.unpack('<BI4I4', entry)
    if k > 1 and flags % 16 >= $LANED and struct.unpack('<I2', entry, $ENTRY_BYTES + 1 + (flags % 4 >= $TIMES and $TIMES_BYTES or 0)) >= $BOUNDED then
      ordinary = false; break
    end
    local tag, first, second, ends = nil, 0, 0, now_ms + lease
    if is_open and queued == 0 and held + weight <= limit and not (in_bounds and in_bounds.is_full) then
      local slot = tonumber(free_slots[granted_free + 1])
      if slot then granted_free = granted_free + 1 else slot, slots_made = slots_made, slots_made + 1 end
      last_token, held, holders, grants = math.max(now_us, last_token + 1), held + weight, holders + 1, grants + 1
      entry = struct.pack('<Bc0dI4', flags + 1, string.sub(entry, 2), last_token, slot)
      tag, first, second = 'granted', last_token, slot
      if in_bounds then put_bounds(weight) end
    elseif weight > limit then
      tag = 'exceeds_limit'
    else
      local may_wait = string.sub(waits, k, k)
      if may_wait == '0' and not in_bounds then
        tag = 'no_permits'
      elseif may_wait ~= '1' then
        ordinary = false; break
      elseif waiting + queued >= queue_max then
        tag, ordinary = 'queue_full', ordinary and not in_bounds
      else
        if flags % 16 >= $LANED then
          if lanes == 0 then ordinary = false; break end
          entry = set_queued(entry, now_us)
        end
        if lanes == 0 then last_ticket = math.max(now_us, last_ticket + 1) end
        tickets[#tickets + 1], tickets[#tickets + 2] = last_ticket, holder
        if in_bounds then put_bounds(0) end
        tag, first, queued, ends = 'waiting', waiting + queued, queued + 1, -ends
        if new then new[queued] = k end
      end
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
end
