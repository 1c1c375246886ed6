-- Turns: when which sessions of waiters call the store, since time alone grants something. Before finish.

local TURNS_MAX, TURN_US = 4, 200000

-- The waiters that are to ask: after work that a bound has cut off, those at the head; else the head, if time
-- may change something of which its session does not know.
local function asking(cut)
  if s.waiting == 0 then return {} end
  if cut then return lanes > 0 and heads_of_lanes(2 * TURNS_MAX) or heads_of_queue(PROMOTE_MAX) end
  if s.paused >= PAUSED or not s.new_turn and s.begun >= s.lease_max then return {} end
  local heads = lanes > 0 and heads_of_lanes(1) or heads_of_queue(1)
  -- A permit that began may end before the head is renewed.
  local _, _, _, lease = parts(heads[1], known[heads[1]])
  local ends_first = s.begun < lease
  return (s.new_turn or ends_first) and heads or {}
end

-- Sends the sessions of these waiters their turns: one after the other, or the head's at a time.
local function announce(heads, cut, at)
  local turns = {}
  for _, head in ipairs(heads) do
    local _, _, _, _, request, from = parts(head, known[head])
    if #turns < TURNS_MAX and not turns[from] then
      local delay = cut and #turns * TURN_US or 1000 * at - now_us
      turns[#turns + 1], turns[from] = from, true
      emit(from, string.format('turn %s %.0f %s', request, math.max(1, delay), head))
    end
  end
end
