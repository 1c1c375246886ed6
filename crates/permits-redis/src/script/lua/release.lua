-- release: forgets each entry, whether it waits or holds, and hands the freed units to the head of the queue.
-- KEYS      as in read.lua
-- ARGV      8… 2 a request: holder, request; behind it a tab and the last token that its session has used, of
--           a grant that it kept, or nothing; and a tab and the units that its grant counts for, if they were
--           corrected
-- Returns   1 a request, its earlier state: 'held' | 'waiting' | 'unknown'
-- Idempotent: a holder that has released already, or was reaped, is unknown; a late release frees no other
--   permit.
-- Cost      5 to 7 calls a batch in the ordinary course, 10 if it grants; about 7 and 13 in the general

local gone, is_gone = {}, {}
for k = 1, count do
  local holder, tag = named[k], 'unknown'
  if known[holder] and not is_gone[holder] then
    local token, slot, weight, lease, request, from, label, at_least, version, keeps, lane, share, key, _, of_lane = parts(holder, known[holder])
    local released, last_token, counted = string.match(given[k], '^([^\t]*)\t?([^\t]*)\t?(.*)$')
    if request == released then
      s.last_token = math.max(s.last_token, tonumber(last_token) or 0)
      tag = token > 0 and 'held' or 'waiting'
      counted = counts_until(token, at_least) > now_ms and tonumber(counted)
      if counted then
        -- The units of a permit count up to the limit. If 0 units count, nothing cools.
        counted = math.min(counted, math.max(s.limit, weight))
        s.held = s.held + counted - weight
        known[holder] = pack(holder, counted, lease, request, from, label, counted > 0 and at_least or 0, version, token, slot, keeps, lane, share, key, of_lane)
        count_in_lane(lane, of_lane, counted - weight)
      end
      gone[#gone + 1], is_gone[holder] = holder, true
    end
  end
  reply[#reply + 1] = tag
end
if #gone == 0 then allow_at_maxmemory() else forget(gone, true) end
promote()
