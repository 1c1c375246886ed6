-- Forgetting entries, and the end of the next lease.

-- Forgets the entries of these holders, each known: waiters leave the queue; holders free units and slots, or
-- cool if their grants count for longer. If the last tokens that their sessions used are not known, all
-- tokens of their grants are spent.
local function forget(gone, tokens_known)
  write()
  if #gone == 0 then return end
  local waiters, left, withheld = {}, {}, {}
  for _, holder in ipairs(gone) do
    local token, slot, weight, lease, request, from, label, at_least, version, keeps, lane, share, key, _, of_lane = parts(holder, known[holder])
    if not tokens_known then spend_tokens(token, keeps) end
    local tab = string.find(holder, '\t', 1, true)
    local until_ms = tab and 0 or counts_until(token, at_least)
    known[holder] = false
    s.new_turn = s.new_turn or token == 0 or until_ms > now_ms or tab ~= nil
    if until_ms > now_ms then
      local cooling = string.format('%s\t%.0f', holder, token)
      put(cooling, pack(cooling, weight, lease, request, from, label, at_least, version, token, slot, keeps, lane, share, key, of_lane))
      leases[#leases + 1], leases[#leases + 2] = string.format('%.0f', until_ms), cooling
      s.earliest, s.cools_until, s.cooling = math.min(s.earliest, until_ms), math.max(s.cools_until, until_ms), s.cooling + weight
    elseif token > 0 then
      s.held, s.holders, s.cooling = s.held - weight, s.holders - 1, s.cooling - (tab and weight or 0)
      count_in_lane(lane, of_lane, -weight)
      if s.recovering and redis.call('ZSCORE', leases_key, holder) - lease < math.floor(s.era_began / 1000) then
        -- The holder was not renewed in this era: its first release may have been lost with the grant of its
        -- units.
        s.held_at_start = s.held_at_start - weight
        add_range(withheld, slot, slot)
      else
        slots.freed[#slots.freed + 1], slots.sorted = -slot, false
      end
    else
      waiters[#waiters + 1], left[lane] = holder, (left[lane] or 0) + 1
      if key then s.by_key[key] = false end
    end
  end
  if #entries > 0 then
    allow_at_maxmemory()
    write()
  end
  if #withheld > 0 then
    redis.call('ZADD', free_key, unpack(withheld))
    s.created[free_key] = true
  end
  redis.call('HDEL', state_key, unpack(gone))
  redis.call('ZREM', leases_key, unpack(gone))
  if #waiters > 0 then
    redis.call('ZREM', queue_key, unpack(waiters))
    s.waiting = s.waiting - #waiters
    for lane, number in pairs(lanes > 0 and left or {}) do
      leave(lane, number)
      note_change(lane)
    end
  end
end

-- The end of the next lease, in ms; infinity without leases. The waiter and the holder whose leases end first
-- are neighbours.
local function next_deadline()
  local first, last = math.max(s.waiting - 1, 0), s.holders > 0 and s.waiting or s.waiting - 1
  local ends = math.huge
  if last >= first then
    local there = redis.call('ZRANGE', leases_key, first, last, 'WITHSCORES')
    for i = 2, #there, 2 do ends = math.min(ends, math.abs(there[i])) end
  end
  return ends
end
