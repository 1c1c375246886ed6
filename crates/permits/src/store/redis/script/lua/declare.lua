-- The decision on a new holder's request, and the rule by which the program's declaration of a limit counts.
-- Before acquire.

local queue_max, waits, RECALL_US = tonumber(ARGV[8]), ARGV[9], 50000

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
    local _, all_cool = cooling_grants()
    may_wait = now_us < recalled + RECALL_US and not all_cool
  end
  if not may_wait then
    return false, not_now(limit, weight)
  end
  return false, s.waiting >= queue_max and 'queue_full' or nil
end

-- Returns true if request `k` may wait.
local function would_wait(k)
  return string.sub(waits, k, k) ~= '0'
end

-- Returns true if request `k` takes the place of a waiter under `limit`.
local function supersedes(k, limit)
  local entry = string.sub(waits, k, k) == '2' and known[named[k]]
  return entry and string.byte(entry) % 2 == 0 and struct.unpack('<I4', given[k], 2) <= limit and lane_of(entry) == lane_of(given[k])
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
      if since == request then reason = token == 0 and weight > limit else reason = not supersedes(k, limit) end
    else
      local _
      _, reason = judge(limit, struct.unpack('<I4', entry, 2), would_wait(k))
    end
    if not reason then return replace_limit(limit) end
  end
  return limit
end
