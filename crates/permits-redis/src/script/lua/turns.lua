-- Turns: the moments at which sessions of waiters call the store, because time alone grants something. Before
-- finish.

-- The waiters that are to ask. After work that a bound has cut off, these are the waiters at the head.
-- Otherwise it is the head alone, if time may change something that its session does not know of.
local function asking(cut)
  if s.waiting == 0 then return {} end
  if cut then return lanes > 0 and heads_of_lanes(8) or heads_of_queue($PROMOTE_MAX) end
  if s.paused >= $PAUSED or not s.new_turn and s.begun >= s.lease_max then return {} end
  local heads = lanes > 0 and heads_of_lanes(1) or heads_of_queue(1)
  -- A permit that began may end before the head is renewed.
  local _, _, _, lease = parts(heads[1], known[heads[1]])
  local ends_first = s.begun < lease
  return (s.new_turn or ends_first) and heads or {}
end
