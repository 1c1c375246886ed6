-- release: forgets each entry, whether it waits or holds, and hands the freed units to the head of the queue.
-- KEYS      as in begin.lua
-- ARGV      8… 2 a request: holder, request
-- Returns   1 a request, its earlier state: 'held' | 'waiting' | 'unknown'
-- Idempotent: a holder that has released already, or was reaped, is unknown; a late release frees no other permit.
-- Cost      about 9 calls a batch, 5 more if it grants

local holders, gone = {}, {}
for i = 8, #ARGV, 2 do holders[#holders + 1] = ARGV[i] end

local found = find(holders)
for i = 8, #ARGV, 2 do
  local holder, tag = ARGV[i], 'unknown'
  local value = found[holder]
  if value then
    local token, _, _, _, request = struct.unpack(ENTRY, value)
    if request == ARGV[i + 1] then
      tag = token > 0 and 'held' or 'waiting'
      gone[#gone + 1], gone[#gone + 2] = holder, value
      found[holder] = nil
    end
  end
  reply[#reply + 1] = tag
end
if #gone == 0 then allow_at_maxmemory() else forget(gone) end
promote()
