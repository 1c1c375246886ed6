-- Granting: the limit, the line's head, and the news for sessions.

local news, listeners = {}, {}

-- How many units may be held after this command.
local function capacity()
  if s.paused == 1 then return 0 end
  return recovering() and math.min(held_at_start, s.limit) or s.limit
end

-- Takes the program's word for the limit, as far as it counts. Returns why not.
local function declare()
  if declaration == 'stored' then return s.limit == 0 and 'no_limit' or nil end
  if declaration == 'require' and s.limit ~= 0 and s.limit ~= declared_limit then return 'limit_mismatch' end
  if s.limit == 0 or (declaration == 'declare' and s.limit ~= declared_limit and s.pinned == 0) then
    s.limit, s.limit_version, changed = declared_limit, s.limit_version + 1, true
  end
end

local function give(entry)
  s.last_token = math.max(now, s.last_token + 1)
  entry.token, entry.slot = s.last_token, take_lowest_slot()
  s.held = s.held + entry.weight
end

-- Tells the entry's session, in one message a session, sent when all is written.
local function tell(entry, line)
  if not news[entry.session] then
    news[entry.session] = {}
    listeners[#listeners + 1] = entry.session
  end
  table.insert(news[entry.session], line)
end

-- Grants the head of the line while it is alive and fits; one that can never fit any more is refused. Returns
-- both kinds, by holder.
local function promote()
  local granted, refused = {}, {}
  local room = capacity() - s.held
  if room <= 0 or s.waiting == 0 then return granted, refused end
  local heads = redis.call('ZRANGE', queue_key, 0, math.min(PROMOTE_MAX, room) - 1)
  local found, entries, holders, heavy, blocked = find(heads), {}, {}, {}, false
  for _, holder in ipairs(heads) do
    local entry = found[holder]
    local dead = reap_cut and -redis.call('ZSCORE', leases_key, holder) <= now_ms
    if not dead and entry.weight > s.limit then
      refused[holder], heavy[#heavy + 1] = entry, entry
      tell(entry, string.format('refused %s %s', entry.request, holder))
    elseif not dead and entry.weight <= room and slot_left() then
      room = room - entry.weight
      give(entry)
      granted[holder], entries[#entries + 1], holders[#holders + 1] = entry, entry, holder
      tell(entry, string.format('granted %s %.0f %.0f %s', entry.request, entry.token, entry.slot, holder))
    else
      blocked = true
      break
    end
  end
  forget(heavy)
  if #holders > 0 then
    redis.call('ZREM', queue_key, unpack(holders))
    s.waiting = s.waiting - #holders
    write(entries, entries)
  end
  promote_cut = not blocked and s.waiting > 0 and room > 0
  return granted, refused
end
