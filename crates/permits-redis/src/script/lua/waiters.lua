-- The waiters and lanes that inspect lists.

-- Waiters in the order in which they are to be granted, with their tickets; with lanes, one of each lane
-- after the other. And the lanes with their numbers of waiters, the largest first.
local function waiters_in_order(max)
  if s.waiting == 0 then return {}, {} end
  if lanes == 0 then return alive(redis.call('ZRANGE', queue_key, 0, max + waiters_ended - 1, 'WITHSCORES'), max), {} end
  local members = redis.call('ZRANGEBYSCORE', lanes_key, 0, '+inf', 'LIMIT', 0, $INSPECT_MAX + waiters_ended)
  local of_each, rounds, listed, waiters = math.ceil(max / math.min(lanes, max)), {}, {}, {}
  for _, member in ipairs(members) do
    local name = string.sub(member, 7)
    local record = record_of(name)
    if record.waiting > 0 and #listed < $INSPECT_MAX then listed[#listed + 1] = { name = name, waiting = record.waiting, number = record.number } end
  end
  for k = 1, math.min(#listed, max) do
    local name, most = listed[k].name, math.min(of_each, listed[k].waiting)
    local from, ended_there = first_ticket(name, listed[k].number), ended_in[name] or 0
    local first = alive(redis.call('ZRANGEBYSCORE', queue_key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, most + ended_there), most)
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
