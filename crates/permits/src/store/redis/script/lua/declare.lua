-- The decision on a new holder's request, and the rule by which the program's declaration of a limit counts.
-- Before acquire.

local queue_max, waits, RECALL_US = tonumber(ARGV[8]), ARGV[9], 50000

-- The reason of the refusal of a request that cannot wait: with its end, in ms, if time alone would let it
-- in.
local function not_now(limit, weight)
  local missing = s.held + weight - limit
  if s.paused == 1 or s.waiting > 0 then return 'no_permits' end
  if missing <= 0 then return s.recovering and 'recovering' or 'no_permits' end
  local COOLING_MAX, cooling = 128, {}
  local ends = now_ms < s.cools_until
    and redis.call('ZRANGEBYSCORE', leases_key, now_ms + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, COOLING_MAX) or {}
  for i = 1, #ends, 2 do
    if string.find(ends[i], '\t', 1, true) then cooling[#cooling + 1], cooling[ends[i]] = ends[i], ends[i + 1] end
  end
  find(cooling)
  for _, holder in ipairs(cooling) do
    local _, _, freed = parts(holder, known[holder])
    missing = missing - freed
    if missing <= 0 then return 'cooling', math.max(cooling[holder], s.recovering_until) - now_ms end
  end
  return 'no_permits'
end

-- Returns true if a request of a new holder fits under `limit`; and if it cannot wait either, the reason of
-- the refusal, and its end.
local function judge(limit, weight, may_wait)
  if weight > limit then return false, 'exceeds_limit' end
  if s.waiting == 0 and s.held + weight <= capacity(limit) and slot_left(limit) then return true end
  -- A recall may free units that sessions keep. A request that may not wait is queued for that time, and its
  -- session withdraws it then. The head of the queue has waited at least since the recall.
  if not may_wait and not s.recovering and s.paused == 0 and now_ms < s.kept_until and s.waiting < queue_max then
    write()
    local recalled = s.waiting > 0 and head_queued() or now_us
    may_wait = now_us < recalled + RECALL_US
  end
  if not may_wait then
    return false, not_now(limit, weight)
  end
  return false, s.waiting >= queue_max and 'queue_full' or nil
end

-- Returns true if request `k` may wait.
local function would_wait(k)
  return string.sub(waits, k, k) == '1'
end

-- Applies the declared limit if that lets one of the requests in, since a refused request changes nothing.
-- Returns the limit under which all are refused, if it lets none in; or the reason for which all are refused
-- under any limit.
local function declare()
  if s.reason then return nil, 'line_closed' end
  local limit, refusal = declared()
  if not limit then return nil, refusal end
  for k = 1, count do
    local holder, entry, reason = named[k], given[k], nil
    if known[holder] then
      -- The promotion refuses a waiter that is too heavy.
      local token, _, weight, _, since = parts(holder, known[holder])
      local _, _, _, _, request = parts(holder, entry)
      reason = since ~= request or token == 0 and weight > limit
    else
      local _
      _, reason = judge(limit, struct.unpack('<I4', entry, 2), would_wait(k))
    end
    if not reason then return replace_limit(limit) end
  end
  return limit
end
