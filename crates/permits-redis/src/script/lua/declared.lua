-- The limit: what it allows, and how a program declares it. Before promote.

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
