-- New waiters. Before acquire.

-- Positions and tickets of new waiters; the tickets that are not written yet, flat as ZADD takes them.
local positions, tickets = {}, {}

local function write_tickets()
  if #tickets > 0 then redis.call('ZADD', queue_key, unpack(tickets)) end
  tickets = {}
end

-- Adds a waiter to the queue. Returns 'waiting' and its position, or the reason of a refusal.
local function enqueue(holder, entry, lease)
  local _, _, _, _, _, _, _, _, _, _, lane = parts(holder, entry)
  -- The lanes are read from what is written.
  if lane ~= '' or s.lanes > 0 then write_tickets() end
  local ticket = join(lane)
  if not ticket then return 'queue_full', 0 end
  if s.waiting == 0 then s.created[queue_key] = true end
  positions[holder], s.waiting = s.waiting, s.waiting + 1
  tickets[#tickets + 1], tickets[#tickets + 2] = string.format('%.0f', ticket), holder
  put(holder, set_queued(entry, now_us))
  extend(holder, lease, false)
  if s.lanes == 0 then return 'waiting', positions[holder] end
  write_tickets()
  return 'waiting', place_of(holder)
end
