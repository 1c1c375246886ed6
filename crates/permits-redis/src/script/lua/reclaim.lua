-- Reclaiming: puts back a holder that the store forgot. Before renew and adopt.

-- Takes this very slot if it is free. Only before any take_lowest_slot of the same command.
local function take_slot(slot)
  local members = {}
  if slot >= s.slots_made then
    add_range(members, s.slots_made, slot - 1)
    s.slots_made = slot + 1
  else
    for i, freed in ipairs(slots.freed) do
      if -freed == slot then return table.remove(slots.freed, i) end
    end
    local found = redis.call('ZREVRANGEBYSCORE', free_key, slot, '-inf', 'LIMIT', 0, 1)[1]
    if not found then return false end
    local first, last = read_range(found)
    if slot > last then return false end
    redis.call('ZREM', free_key, found)
    add_range(members, first, slot - 1)
    add_range(members, slot + 1, last)
  end
  if #members > 0 then
    redis.call('ZADD', free_key, unpack(members))
    s.created[free_key] = true
  end
  return true
end

-- A holder without an entry was reaped, and has lost its permit, or was forgotten: its token shows which.
local function reclaim(holder, entry)
  local token, slot, weight, lease = parts(holder, entry)
  -- A waiter that has been granted meanwhile names its grant in the next renewal.
  if token == 0 then return 'again' end
  local lost = s.era_began
  if string.find(recovery, ':handle', 1, true) then
    -- A handle may be one of a permit that was forgotten as idle, or be invented: it counts only if the store
    -- knows of a loss since the grant. Without any state that is a start of this server.
    if s.era_known == 0 then
      local _, _, started = server_identity()
      lost = math.min(lost, started)
    end
    -- A permit that was granted in this era may have been of the slot.
    if s.last_token >= s.era_began then return 'lost' end
  end
  local forgotten = s.era_known < token and token < lost
  if not forgotten or now_ms >= math.floor(lost / 1000) + lease then return 'lost' end
  -- The permit was put back before, and has ended since.
  local cooling = string.format('%s\t%.0f', holder, token)
  find({ cooling })
  if known[cooling] then return 'lost' end
  -- Nothing is granted while the limit is not known either, so nothing can exceed it.
  local named, lane = bounds_for(holder, entry)
  local bounded = named and bounds_of(lane) or named
  local is_full = bounded and bounded.limit > 0 and bounded.held + weight > bounded.limit
  if s.limit > 0 and s.held + weight > s.limit or is_full or not take_slot(slot) then
    -- Holders that are gone, and whose releases were lost, may have its units until their leases end. Then
    -- it is the next, and no waiter.
    if s.recovering then
      s.recovering_until = math.max(s.recovering_until, math.min(now_ms + window, math.floor(s.era_began / 1000) + lease))
    end
    return 'again'
  end
  -- Always: a later request of the batch may remove the last entry before this one is written.
  s.created[leases_key] = true
  s.last_token = math.max(s.last_token, token)
  s.held, s.holders, s.begun = s.held + weight, s.holders + 1, math.min(s.begun, lease)
  if named and not bounds_of(lane) then declare_lane(holder, entry) end
  put(holder, entry)
  count_grant(holder)
  extend(holder, lease, true)
  return 'held'
end
