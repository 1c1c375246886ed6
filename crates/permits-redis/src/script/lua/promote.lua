-- Granting: the limit, and the head of the queue.

-- Makes a holder of a waiter's entry, stored or not. Returns the token and the slot.
local function grant(holder, entry, weight, lease)
  s.last_token, s.held, s.holders, s.grants = math.max(now_us, s.last_token + 1), s.held + weight, s.holders + 1, s.grants + 1
  local slot, entry = take_lowest_slot(), set_queued(entry, 0)
  put(holder, struct.pack('<Bc0dI4', string.byte(entry) + 1, string.sub(entry, 2), s.last_token, slot))
  if bounded_lanes > 0 then count_grant(holder) end
  extend(holder, lease, true)
  return s.last_token, slot
end

-- Grants to a head if it is alive and fits, and refuses a head that is heavier than the limit, or than the
-- limit of its lane. Returns the units granted; nil if it stays.
local function grant_head(holder, room)
  local _, _, weight, lease, request, from, _, at_least, _, _, lane, _, key = parts(holder, known[holder])
  local bounded = bounds_of(lane)
  if s.reap_truncated and -redis.call('ZSCORE', leases_key, holder) <= now_ms then return end
  if bounded and bounded.limit == 0 then bounded = nil end
  if weight > s.limit or bounded and weight > bounded.limit then
    s.refused = s.refused + 1
    emit(from, string.format('refused %s %s', request, holder))
    return 0
  end
  -- A lane with a limit waits until a recovery has ended: a forgotten holder may be of that lane.
  if weight > room or not slot_left(s.limit) or bounded and s.recovering then return end
  s.waits, s.new_turn, s.begun = add_wait(s.waits, queued_at(holder, known[holder])), s.new_turn or at_least > 0, math.min(s.begun, lease)
  if key then s.by_key[key] = false end
  local token, slot = grant(holder, known[holder], weight, lease)
  emit(from, string.format('granted %s %.0f %.0f %s', request, token, slot, holder))
  return weight
end

-- Grants the head of the queue while it is alive and fits; a head heavier than the limit is refused, and
-- every head while the line is closed.
local function promote()
  settle()
  if s.reason then return refuse_waiters() end
  s.promote_truncated = false
  local room = capacity(s.limit) - s.held
  if room <= 0 or s.waiting == 0 then return end
  local heads, heavy, granted, units = {}, {}, {}, nil
  for i = 1, math.min($PROMOTE_MAX, s.waiting) do
    local names, progress = nil, nil
    if lanes > 0 then
      heads, names, progress = heads_of_lanes(1)
    elseif i > #heads then
      -- Few at first: the first one may not fit.
      add_heads(heads, math.min($PROMOTE_MAX - #heads, i == 1 and math.min(room, 8) or 8 * #heads))
    end
    local holder = heads[names and 1 or i]
    units = not (names and progress[1] >= $FULL) and grant_head(holder, room) or nil
    if not units then break end
    room = room - units
    if not names then
      table.insert(units == 0 and heavy or granted, holder)
    elseif units == 0 then
      forget({ holder })
    else
      redis.call('ZREM', queue_key, holder)
      s.waiting = s.waiting - 1
      leave(names[1], 1, progress[1])
      note_change(names[1])
    end
    settle()
    if room == 0 then break end
  end
  forget(heavy)
  if #granted > 0 then redis.call('ZREM', queue_key, unpack(granted)) end
  s.waiting = s.waiting - #granted
  write()
  s.promote_truncated = units ~= nil and room > 0 and in_line()
end
