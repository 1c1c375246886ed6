-- The ordinary course of release: each request names a permit that is held, and that does not cool. Without
-- waiters the slots become free; with waiters, hand_over continues.

local free, gone, freed, held_after, several
ordinary = ordinary and #ARGV > 7
if ordinary then
  free, gone, freed, held_after, several = slots_made - holders, { false }, { false }, held, #ARGV > 9
  for i = 8, #ARGV, 2 do
    local holder, value = ARGV[i], found[i / 2 - 2]
    if not value or found[holder] then ordinary = false; break end
    local holds, weight, _, request_bytes = struct.unpack('<BI4I4B', value)
    local request = request_bytes > 0 and string.sub(holder, -request_bytes) or holds == HOLDS and struct.unpack('s', value, 12)
    if holds ~= HOLDS or request ~= ARGV[i + 1] then ordinary = false; break end
    held_after, gone[i / 2 - 3], freed[i / 2 - 3] = held_after - weight, holder, struct.unpack('<I4', value, #value - 3)
    if several then found[holder] = true end
  end
end

-- The first write shows that the leases are there.
if ordinary and waiting == 0 and (free == 0 or redis.call('EXISTS', free_key) == 1)
  and redis.call('ZREM', leases_key, unpack(gone)) == #gone then
  holders = holders - #gone
  redis.call('HDEL', state_key, unpack(gone))
  if held_after == 0 then
    if free > 0 then redis.call('DEL', free_key) end
    slots_made = 0
  else
    local members = {}
    for i, slot in ipairs(freed) do members[2 * i - 1], members[2 * i] = slot, slot end
    redis.call('ZADD', free_key, unpack(members))
    if free == 0 and pinned == 0 then redis.call('PEXPIREAT', free_key, expires) end
  end
  redis.call('HSET', state_key, STATE, struct.pack('<Bdddddddddddc0', LAYOUT, sequence + 1, held_after, holders, waiting, last_token,
    last_ticket, slots_made, earliest, checked, grants, refused, string.sub(packed, REST_AT)))
  local reply = { now_us, sequence + 1, -1, limit, limit_version, pinned, 0, 0, 'held' }
  for i = 2, #gone do reply[8 + i] = 'held' end
  return reply
end
