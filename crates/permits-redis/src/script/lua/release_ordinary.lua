-- The ordinary course of release: each request names a permit that is held, and that does not cool. If nobody
-- gets the units, release_free frees the slots; otherwise hand_over hands them over.

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
