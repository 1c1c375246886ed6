-- acquire: grants each request in order, or stands it in line, or refuses it. A newcomer never overtakes.
-- KEYS      as in begin.lua
-- ARGV      8 the most waiters; then 5 a request: holder, request, weight, lease ms, 1 to wait or 0
-- Returns   3 a request: 'granted' token slot | 'waiting' position 0 | the reason of a refusal, 0, 0
-- Idempotent: a known request gets its earlier answer, and a new lease.
-- Cost      about 8 calls a batch; O(log n) a request

local queue_max, count = tonumber(ARGV[8]), #ARGV
local holders = {}
for i = 9, count, 5 do holders[#holders + 1] = ARGV[i] end

local refusal = declare()
promote()
local capacity = capacity()

-- What is known, as the batch goes on, and the places of those that it stood in line.
local known, places, tickets, somebody_waits = find(holders), {}, {}, false
local reply, n = { 0, 0, 0, 0, 0, 0 }, 6

for i = 9, count, 5 do
  local holder, request, weight, lease = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local tag, a, b = refusal, 0, 0
  local value = known[holder]
  if value then
    local token, slot, _, since_lease, since = struct.unpack(ENTRY, value)
    if since ~= request then
      tag = 'already_held'
    else
      extend(holder, since_lease, token > 0)
      if token > 0 then
        tag, a, b = 'granted', token, slot
      else
        tag, a = 'waiting', places[holder] or redis.call('ZRANK', queue_key, holder)
      end
    end
  elseif not refusal then
    local fits = s.waiting == 0 and s.held + weight <= capacity and slot_left()
    if weight > s.limit then
      tag = 'exceeds_limit'
    elseif not fits and ARGV[i + 4] == '0' then
      tag = 'no_permits'
    elseif not fits and s.waiting >= queue_max then
      tag = 'queue_full'
    else
      if s.held == 0 and s.waiting == 0 then
        s.created[entries_key], s.created[leases_key] = true, true
      end
      if fits then
        tag, a, b = 'granted', give(weight)
      else
        if s.waiting == 0 then s.created[queue_key] = true end
        tag, a, places[holder], s.waiting = 'waiting', s.waiting, s.waiting, s.waiting + 1
        s.last_ticket = s.last_ticket + 1
        tickets[#tickets + 1], tickets[#tickets + 2] = s.last_ticket, holder
      end
      known[holder] = put(holder, fits and a or 0, b, weight, lease, request, session)
      extend(holder, lease, fits)
    end
  end
  somebody_waits = somebody_waits or tag == 'waiting'
  reply[n + 1], reply[n + 2], reply[n + 3] = tag, a, b
  n = n + 3
end

write()
if #tickets > 0 then redis.call('ZADD', queue_key, unpack(tickets)) end
