-- release: forgets each entry, whether it waits or holds, and hands what it frees to the head of the line.
-- KEYS      as in begin.lua
-- ARGV      8… 2 a request: holder, request
-- Returns   1 a request: 'held' | 'waiting' | 'unknown', which says what it was
-- Idempotent: who has released already, or was reaped, is unknown; a late release frees nobody else's permit.
-- Cost      about 9 calls a batch, 5 more if it grants

local holders, answers, gone = {}, {}, {}
for i = 8, #ARGV, 2 do holders[#holders + 1] = ARGV[i] end

local found = find(holders)
for i = 8, #ARGV, 2 do
  local entry = found[ARGV[i]]
  if entry and entry.request == ARGV[i + 1] then
    answers[#answers + 1] = entry.token and 'held' or 'waiting'
    gone[#gone + 1] = entry
    found[ARGV[i]] = nil
  else
    answers[#answers + 1] = 'unknown'
  end
end
if #gone == 0 then allow_at_maxmemory() end
forget(gone)
promote()
return finish(answers)
