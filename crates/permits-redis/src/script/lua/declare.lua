-- The decision on a new holder's request, and the rule by which the program's declaration of a limit counts.
-- Before acquire.

-- The waiter with this key, if there is one. A field of the state, a tab, '=' and the key, has its holder.
local function waiter_of(key)
  local holder = s.by_key[key]
  if holder == nil then holder = redis.call('HGET', state_key, string.format('\t=%s', key)) end
  if holder then find({ holder }) end
  return holder and known[holder] and holder
end

-- Returns true if request `k` of a new holder fits under `limit` and the bounds of its lane: those in force
-- if `in_force`, else those that the request names. If it cannot wait either, also the reason of the refusal,
-- and its end. If it waits, also its key, if it has one, and the waiter that it supersedes.
local function judge(limit, k, in_force)
  local weight, may_wait = struct.unpack('<I4', given[k], 2), string.sub(waits, k, k)
  if weight > limit then return false, 'exceeds_limit' end
  local bounded, lane = bounds_for(named[k], given[k], in_force)
  if bounded and bounded.limit > 0 and weight > bounded.limit then return false, 'exceeds_lane_limit', bounded.limit end
  local is_in_lane = bounded and (is_full_for(bounded, weight) or waits_in(lane))
  if s.held + weight <= capacity(limit) and slot_left(limit) and not is_in_lane and not is_behind(bounded, weight) then return true end
  if may_wait == '0' and waits_for_recall(k) then may_wait = '1' end
  if may_wait == '0' then return false, not_now(limit, weight, bounded, lane) end
  local key = may_wait ~= '1' and select(13, parts(named[k], given[k]))
  local superseded = key and waiter_of(key)
  if superseded and may_wait == '3' then return false, 'superseded' end
  return false, no_place(k, superseded), nil, key, superseded
end

-- Applies the lane bounds of each new request that is let in, and notes it in `let_in`.
local let_in = {}
local function declare_lanes()
  for k = 1, count do
    if names_bounds(given[k]) and not known[named[k]] then
      local _, reason = judge(s.limit, k)
      if not reason then let_in[k] = true declare_lane(named[k], given[k]) end
    end
  end
end

-- Applies the declared limit if that lets one of the requests in, since a refused request changes nothing;
-- and the bounds of lanes. Returns the limit under which all are refused, if it lets none in; or the
-- reason for which all are refused under any limit.
local function declare()
  if s.reason then return nil, 'line_closed' end
  local limit, refusal = declared()
  if not limit then
    if not refusal then declare_lanes() end
    return nil, refusal
  end
  for k = 1, count do
    local holder, entry, reason = named[k], given[k], nil
    if known[holder] then
      -- The promotion refuses a waiter that is too heavy.
      local token, _, weight, _, since = parts(holder, known[holder])
      local _, _, _, _, request = parts(holder, entry)
      reason = since ~= request or token == 0 and weight > limit
    else
      local _
      _, reason = judge(limit, k)
    end
    if not reason then
      replace_limit(limit)
      return declare_lanes()
    end
  end
  return limit
end
