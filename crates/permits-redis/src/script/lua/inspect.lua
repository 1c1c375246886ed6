-- inspect: lists holders by the end of their lease, waiters in order, and changes by operators, the last one
-- first.
-- KEYS      as in read.lua
-- ARGV      8 the most to list of each; at most INSPECT_MAX. The last change of each part is listed besides,
--           unless it is 0
-- Returns   held, cooling, waiting, 1 if it is paused or 0, the ms until its end or -1, the reason, 1 if the
--           line is closed or 0, the reason, the longest wait in ms and the most waiters of the alert or 0,
--           grants, refused, expired, revoked, 7 numbers of waits as in
--           waits.lua, the numbers of holders, of changes and of waiters; 8 a holder: holder, weight, token,
--           slot, lease remaining ms, 1 if it cools and 2 if it may be kept, label, lane; 1 a change: its
--           line, as in changes.lua; 5 a waiter: holder, weight, µs when it was queued, label, lane; 6 a
--           lane: name, waiters, units held, limit and floor or 0, 1 if they are pinned or 0
-- Idempotent.
-- Cost      about 10 calls; O(listed)

local max = math.min(tonumber(ARGV[8]), $INSPECT_MAX)
local listed = 0

local function list(...)
  for _, value in ipairs({ ... }) do reply[#reply + 1] = value end
  listed = listed + 1
end

local ends_in = s.paused > 0 and s.paused < $PAUSED and s.paused - now_ms or -1
list(s.held, s.cooling, s.waiting, math.min(s.paused, 1), ends_in, s.paused > 0 and pause_reason() or '', s.reason and 1 or 0, s.reason or '')
list(s.alert_wait, s.alert_waiting, s.grants, s.refused, s.expired, s.revoked, struct.unpack('$WAITS', s.waits))
-- Unpack also returns the position behind the last number: the numbers of listed things replace it.
local NUMBERS = #reply
reply[NUMBERS], reply[NUMBERS + 1], reply[NUMBERS + 2] = 0, 0, 0
listed = 0

-- Calls `each` for each member of a sorted set, with its score and its entry.
local function list_all(scored, each)
  local holders = {}
  for i = 1, #scored, 2 do holders[#holders + 1] = scored[i] end
  find(holders)
  for i, holder in ipairs(holders) do
    each(holder, tonumber(scored[2 * i]), parts(holder, known[holder]))
  end
end

if max > 0 then
  local held_in = {}
  list_all(holders_alive(max),
    function(holder, deadline, token, slot, weight, _, _, _, label, _, _, keeps, lane)
      local tab = string.find(holder, '\t', 1, true)
      local name = tab and string.sub(holder, 1, tab - 1) or holder
      list(name, weight, token, slot, math.max(0, deadline - now_ms), (tab and 1 or 0) + (keeps and 2 or 0), label, lane)
      held_in[lane] = (held_in[lane] or 0) + weight
    end)
  reply[NUMBERS], listed = listed, 0
  local followed = {}
  for i = #changes, 1, -1 do
    local _, _, part = change_fields(changes[i])
    if #changes - i < max or not followed[part] then list(changes[i]) end
    followed[part] = true
  end
  reply[NUMBERS + 1], listed = listed, 0
  local waiters, waiting_in = waiters_in_order(max)
  list_all(waiters, function(holder, ticket, _, _, weight, _, _, _, label, _, _, _, lane, share, _, queued)
    list(holder, weight, (lane ~= '' or share ~= 1) and queued or ticket, label, lane)
  end)
  reply[NUMBERS + 2] = listed
  for k, lane in ipairs(lanes_in_order(waiting_in, held_in)) do
    if k <= $INSPECT_LANES_MAX or lane.pinned then
      list(lane.name, lane.waiting, lane.held, lane.limit or 0, lane.floor or 0, lane.pinned and 1 or 0)
    end
  end
end
return reply
