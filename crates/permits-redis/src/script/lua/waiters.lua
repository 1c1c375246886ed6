-- The waiters and lanes that inspect lists.

-- Waiters in the order in which they are to be granted, with their tickets; with lanes, one of each lane in
-- turn. Also returns the lanes with their numbers of waiters.
local function waiters_in_order(max)
  if s.waiting == 0 then return {}, {} end
  if lanes == 0 then return alive(redis.call('ZRANGE', queue_key, 0, max + waiters_ended - 1, 'WITHSCORES'), max), { { name = '', waiting = s.waiting } } end
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
  return waiters, listed
end

-- Adds the lanes of `held`, which has the units of listed holders by lane, and all pinned lanes to the lanes
-- with waiters. Sorts them by their waiters, then by their units. A lane with bounds shows these and the
-- units that count for them, unless it only holds what it was granted before it had bounds.
local function lanes_in_order(listed, held)
  for name in string.gmatch(s.pins > 0 and redis.call('HGET', state_key, '$PINS') or '', '[^\n]+') do held[name] = held[name] or 0 end
  for _, lane in ipairs(listed) do lane.held, held[lane.name] = held[lane.name] or 0, nil end
  for name, units in pairs(held) do listed[#listed + 1] = { name = name, waiting = 0, held = units } end
  if not listed[2] and (not listed[1] or listed[1].name == '') then return {} end
  local fields = {}
  for k, lane in ipairs(listed) do fields[k] = string.format('\t#%s', lane.name) end
  for k, found in ipairs(bounded_lanes > 0 and redis.call('HMGET', state_key, unpack(fields)) or {}) do
    local lane = listed[k]
    if found then
      local limit, floor, counted = struct.unpack('<ddd', found)
      counted, lane.pinned = s.lost and 0 or counted - (freed_in[lane.name] or 0), #found > 24
      if lane.waiting + counted > 0 or lane.pinned then lane.limit, lane.floor, lane.held = limit, floor, counted end
    end
  end
  table.sort(listed, function(a, b)
    if a.waiting ~= b.waiting then return a.waiting > b.waiting end
    return a.held > b.held or a.held == b.held and a.name < b.name
  end)
  return listed
end
