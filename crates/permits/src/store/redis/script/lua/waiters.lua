-- The waiters and lanes that inspect lists.

local INSPECT_MAX, INSPECT_LANES_MAX = 1000, 32

-- Waiters in the order in which they are to be granted, with their tickets; with lanes, one of each lane
-- after the other. And the lanes with their numbers of waiters, the largest first.
local function waiters_in_order(max)
  if lanes == 0 then return redis.call('ZRANGE', queue_key, 0, max - 1, 'WITHSCORES'), {} end
  local members = redis.call('ZRANGEBYSCORE', lanes_key, 0, '+inf', 'LIMIT', 0, INSPECT_MAX)
  local of_each, rounds, listed, waiters = math.ceil(max / math.min(lanes, max)), {}, {}, {}
  for k, member in ipairs(members) do
    local name = string.sub(member, 7)
    local record = record_of(name)
    local from, most = first_ticket(name, record.number), math.min(of_each, record.waiting)
    listed[k] = { name = name, waiting = record.waiting }
    local first = k <= max and redis.call('ZRANGEBYSCORE', queue_key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, most) or {}
    for i = 1, #first, 2 do
      rounds[i] = rounds[i] or {}
      table.insert(rounds[i], first[i])
      table.insert(rounds[i], first[i + 1])
    end
  end
  for i = 1, 2 * of_each, 2 do
    for _, value in ipairs(rounds[i] or {}) do
      if #waiters < 2 * max then waiters[#waiters + 1] = value end
    end
  end
  table.sort(listed, function(a, b) return a.waiting > b.waiting or a.waiting == b.waiting and a.name < b.name end)
  return waiters, listed
end
