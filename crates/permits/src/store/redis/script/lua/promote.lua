-- Granting: the limit, the head of the queue, and the events for sessions.

local events, recipients = {}, {}

-- The most units that may be held after this command, under `limit`.
local function capacity(limit)
  if s.paused == 1 then return 0 end
  return s.recovering and math.min(s.held_at_start, limit) or limit
end

-- The limit by which the program's declaration replaces the stored one, if it does; or the reason of a refusal.
local function declared()
  local declaration, limit = ARGV[6], tonumber(ARGV[7])
  if declaration == 'stored' then return nil, s.limit == 0 and 'no_limit' or nil end
  if declaration == 'require' and s.limit ~= 0 and s.limit ~= limit then return nil, 'limit_mismatch' end
  if s.limit == 0 or (declaration == 'declare' and s.limit ~= limit and s.pinned == 0) then return limit end
end

local function replace_limit(limit)
  s.replaced, s.limit, s.limit_version = s.limit, limit, s.limit_version + 1
end

-- Takes `weight` units. Returns the token and the slot.
local function take_units(weight)
  s.last_token, s.held, s.holders = math.max(now_us, s.last_token + 1), s.held + weight, s.holders + 1
  return s.last_token, take_lowest_slot()
end

-- Adds an event for a session. Finish publishes one message for each session, when all is written.
local function emit(to, line)
  if not events[to] then events[to], recipients[#recipients + 1] = {}, to end
  table.insert(events[to], line)
end

-- Grants the head of the queue while it is alive and fits; a head heavier than the limit is refused. Returns both
-- kinds, by holder: the granted as packed, the refused as true.
local function promote()
  local granted, refused = {}, {}
  local room = capacity(s.limit) - s.held
  if room <= 0 or s.waiting == 0 then return granted, refused end
  local PROMOTE_MAX = 500
  local heads = redis.call('ZRANGE', queue_key, 0, math.min(PROMOTE_MAX, room) - 1)
  local found, holders, heavy, blocked = find(heads), {}, {}, false
  for _, holder in ipairs(heads) do
    local _, _, weight, lease, request, from, label = struct.unpack(ENTRY, found[holder])
    local dead = s.reap_truncated and -redis.call('ZSCORE', leases_key, holder) <= now_ms
    if not dead and weight > s.limit then
      refused[holder], heavy[#heavy + 1], heavy[#heavy + 2] = true, holder, found[holder]
      emit(from, string.format('refused %s %s', request, holder))
    elseif not dead and weight <= room and slot_left(s.limit) then
      room = room - weight
      local token, slot = take_units(weight)
      granted[holder], holders[#holders + 1] = put(holder, token, slot, weight, lease, request, from, label), holder
      extend(holder, lease, true)
      emit(from, string.format('granted %s %.0f %.0f %s', request, token, slot, holder))
    else
      blocked = true
      break
    end
  end
  if #heavy > 0 then forget(heavy) end
  if #holders > 0 then
    redis.call('ZREM', queue_key, unpack(holders))
    s.waiting = s.waiting - #holders
    write()
  end
  s.promote_truncated = not blocked and s.waiting > 0 and room > 0
  return granted, refused
end
