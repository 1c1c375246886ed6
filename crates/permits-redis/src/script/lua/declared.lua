-- The limit and the bounds of lanes: what the limit allows, and how programs declare them. Before promote.

-- The most units that may be held after this command, under `limit`.
local function capacity(limit)
  if s.paused > 0 then return 0 end
  return s.recovering and math.min(s.held_at_start, limit) or limit
end

-- The limit by which the declaration replaces the stored one, if it does; or the reason of a refusal.
local function declared()
  if declaration == 'stored' then return nil, s.limit == 0 and 'no_limit' or nil end
  local limit = tonumber(declared_limit)
  local differs = s.limit ~= limit
  if declaration == 'require' and s.limit ~= 0 and differs then return nil, 'limit_mismatch' end
  if s.limit == 0 or declaration == 'declare' and differs and s.pinned == 0 then return limit end
end

local function replace_limit(limit)
  s.replaced, s.limit, s.limit_version = s.limit, limit, s.limit_version + 1
end

-- The bounds that count for a request, and its lane. Those that the request names count, unless it names none
-- or those of its lane stay, because they are pinned or `in_force` is true. Nothing if there are no bounds.
local function bounds_for(holder, entry, in_force)
  if bounded_lanes == 0 and not names_bounds(entry) then return end
  local _, _, _, _, _, _, _, _, _, _, lane, _, _, _, of_lane = parts(holder, entry)
  local bounded = bounds_of(lane)
  if of_lane and not (bounded and (in_force or bounded.pinned)) then
    local limit, floor = struct.unpack('<I4I4', of_lane)
    local was = bounded or { limit = 0, floor = 0, held = 0 }
    bounded = { limit = limit > 0 and limit or was.limit, floor = floor > 0 and floor or was.floor, held = was.held }
  end
  return bounded, lane
end

-- Puts the bounds that a request names in force.
local function declare_lane(holder, entry)
  if not names_bounds(entry) then return end
  local wanted, lane = bounds_for(holder, entry)
  local was = bounds_of(lane)
  if not was then
    bounded_lanes = bounded_lanes + 1
  elseif was.limit > 0 and was.limit ~= wanted.limit or was.floor > 0 and was.floor ~= wanted.floor then
    s.replaced_bounds = string.format('%.0f %.0f %.0f %s', s.replaced or 0, was.limit, was.floor, lane)
  end
  bounds.of[lane], bounds.changed[lane], bounds.unsettled[lane] = wanted, true, true
end
