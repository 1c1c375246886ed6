-- Refusals: when time alone would let in a request that cannot wait, and whether the queue has a place for
-- one that can. Before declare.

local queue_max, waits = tonumber(ARGV[8]), ARGV[9]

-- The cooling grants among the grants that end first, with their ends. Also true if all grants cool, so that
-- no session keeps any of them.
local function cooling_grants()
  local COOLING_MAX, from, cooling, ends = 128, now_ms + 1, {}, {}
  if now_ms < s.cools_until then
    ends = redis.call('ZRANGEBYSCORE', leases_key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, COOLING_MAX)
  end
  for i = 1, #ends, 2 do
    local holder = ends[i]
    if string.find(holder, '\t', 1, true) then cooling[#cooling + 1], cooling[holder] = holder, ends[i + 1] end
  end
  return cooling, #cooling == s.holders
end

-- The reason why request `k` may not wait: the queue or its lane is full. If the request takes the place of
-- the waiter `superseded`, that waiter does not count. Nil if there is a place.
local function no_place(k, superseded)
  if s.waiting - (superseded and 1 or 0) >= queue_max then return 'queue_full' end
  local most = #waits > count and lanes > 0 and struct.unpack('<I4', waits, count + 4 * k - 3) or 0
  if most == 0 then return end
  local lane = lane_of(given[k])
  local record = record_of(lane)
  local leaves = superseded and lane_of(known[superseded]) == lane
  if record and record.waiting - (leaves and 1 or 0) >= most then return 'lane_queue_full' end
end

-- Returns true if a recall may free units that sessions keep. Request `k`, which may not wait, is queued for
-- that time, and its session withdraws it then. The head of the queue has waited at least since the recall.
-- Once true, it stays true until the command ends: a promotion may leave a head that has waited longer.
local recalls = false
local function waits_for_recall(k)
  if s.recovering or s.paused > 0 or now_ms >= s.kept_until or no_place(k) then return false end
  if not recalls then
    write()
    local RECALL_US, recalled, _, all_cool = 50000, s.waiting > 0 and head_queued() or now_us, cooling_grants()
    recalls = now_us < recalled + RECALL_US and not all_cool
  end
  return recalls
end

-- The ms from which `units` fit under `limit`, if no holder has to leave for that: now, or when enough units
-- have cooled. If a lane with bounds is named, only the cooling units that count for it are looked at.
local function fits_at(units, limit, lane)
  local missing = units - limit
  if missing <= 0 then return now_ms end
  local cooling = cooling_grants()
  find(cooling)
  for _, holder in ipairs(cooling) do
    local _, _, freed, _, _, _, _, _, _, _, of, _, _, _, of_lane = parts(holder, known[holder])
    if not lane or of_lane and of == lane then missing = missing - freed end
    if missing <= 0 then return tonumber(cooling[holder]) end
  end
end

-- The reason of the refusal of a request that cannot wait: with its end, in ms, if time alone would let it
-- in; -1 if the end of a pause or of a full lane is not known. If units cool, a pause has an end and the
-- store recovers, the reason that lasts longest is returned.
local function not_now(limit, weight, bounded, lane)
  local at, lane_at = not is_behind(bounded, weight) and fits_at(s.held + weight, limit), now_ms
  if bounded and bounded.limit > 0 then lane_at = not waits_in(lane) and fits_at(bounded.held + weight, bounded.limit, lane) end
  if s.paused > 0 and not (at and lane_at and s.paused < $PAUSED) then return 'paused', -1 end
  if not (at and lane_at) then
    if lane_at ~= now_ms then return 'lane_full', -1 end
    return 'no_permits'
  end
  local ends = math.max(at, lane_at, s.recovering_until, s.paused)
  if ends == now_ms then return 'no_permits' end
  if ends == s.paused then return 'paused', ends - now_ms end
  if lane_at > now_ms and ends == lane_at then return 'lane_full', ends - now_ms end
  if ends == at then return 'cooling', ends - now_ms end
  return 'recovering'
end
