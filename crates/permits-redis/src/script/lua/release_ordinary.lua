-- The ordinary course of release: each request names a permit that is held, and that does not cool. Without
-- waiters the slots become free; with waiters, hand_over continues.

local free, freed = nil, { nil }   -- the number of slots that were free, and the slots of these permits
ordinary = ordinary and count > 0 and stored == count
if ordinary then
  free = slots_made - holders
  for k = 1, count do
    local holder, entry = named[k], found[k + 1]
    local flags, weight, _, request_bytes = struct.unpack('<BI4I4B', entry)
    local request = request_bytes > 0 and string.sub(holder, -request_bytes)
      or flags % 4 == 1 and struct.unpack('s', entry, $ENTRY_BYTES + 1 + (flags % 16 >= $LANED and $LANED_BYTES or 0))
    if flags % 4 ~= 1 or request ~= given[k] then ordinary = false; break end
    local _, slot = struct.unpack('<dI4', entry, #entry - $GRANT_BYTES + 1)
    held, freed[k], reply[#reply + 1] = held - weight, slot, 'held'
  end
end

-- The first write shows that the leases are there.
if ordinary and waiting == 0 and (free == 0 or redis.call('EXISTS', free_key) == 1)
  and redis.call('ZREM', leases_key, unpack(named)) == count then
  redis.call('HDEL', state_key, unpack(named))
  holders, decided = holders - count, true
  if held == 0 then
    if free > 0 then redis.call('DEL', free_key) end
    slots_made = 0
  else
    local members = { nil, nil }
    for _, slot in ipairs(freed) do members[#members + 1], members[#members + 2] = slot, slot end
    redis.call('ZADD', free_key, unpack(members))
    if free == 0 and pin == 0 then redis.call('PEXPIREAT', free_key, expires) end
  end
end
