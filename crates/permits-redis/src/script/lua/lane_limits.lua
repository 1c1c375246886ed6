-- The limits of lanes, as in model/queue.rs of permits-core. While `s.limited`, the number of lanes with a
-- limit, is not 0, a field of the state, a tab, '#' and the name of such a lane, has its limit and the units
-- that its requests hold. A lane that is full has as its score its progress times $FULL, so it is behind all
-- others.

-- By name, as far as they were read, false without a limit; the names of those to write; and of those of
-- which it is to be checked whether they are full.
local limits = { of = {}, changed = {}, unsettled = {} }

-- The limit of a lane and what it holds, or nil.
local function limit_of(name)
  if s.limited == 0 or name == '' then return end
  if limits.of[name] == nil then
    local found = redis.call('HGET', state_key, string.format('\t#%s', name))
    limits.of[name] = found and {}
    if found then limits.of[name].limit, limits.of[name].held = struct.unpack('<dd', found) end
  end
  return limits.of[name] or nil
end

-- Returns true if a request of this weight has to wait until others of its lane have left. One that never
-- fits is no reason to wait.
local function is_full_for(limited, weight)
  return weight <= limited.limit and limited.held + weight > limited.limit
end

-- Notes that a lane has another head.
local function note_change(name)
  if limit_of(name) then limits.unsettled[name] = true end
end

-- Notes that a lane holds so many units more, of a grant that names its limit.
local function count_in_lane(name, lane_limit, units)
  local limited = lane_limit and limit_of(name)
  if not limited then return end
  limited.held, limits.changed[name], limits.unsettled[name] = limited.held + units, true, true
end

-- Counts a new grant, also one that does not name the limit of its lane.
local function count_grant(holder)
  local token, slot, weight, lease, request, from, label, at_least, version, keeps, lane, share, key, _, lane_limit = parts(holder, known[holder])
  local limited = limit_of(lane)
  if not limited then return end
  if not lane_limit then
    put(holder, pack(holder, weight, lease, request, from, label, at_least, version, token, slot, keeps, lane, share, key, limited.limit))
  end
  count_in_lane(lane, true, weight)
end

-- The limit that counts for a request: one that it names, unless that in force counts, or that of its lane,
-- with what that holds; nil without one. And the lane.
local function limit_for(holder, entry, in_force)
  if s.limited == 0 and not names_limit(entry) then return end
  local _, _, _, _, _, _, _, _, _, _, lane, _, _, _, lane_limit = parts(holder, entry)
  local limited = limit_of(lane)
  if lane_limit and not (in_force and limited) then limited = { limit = lane_limit, held = limited and limited.held or 0 } end
  return limited, lane
end

-- Puts the limit that a request names in force.
local function declare_lane(holder, entry)
  if not names_limit(entry) then return end
  local wanted, lane = limit_for(holder, entry)
  if not limit_of(lane) then s.limited = s.limited + 1 end
  limits.of[lane], limits.changed[lane], limits.unsettled[lane] = wanted, true, true
end
