-- acquire: grants, queues or refuses each request, in order. A newcomer never overtakes. A declared limit counts if it
-- lets one of the requests in, since a refused request changes nothing.
-- KEYS      as in begin.lua
-- ARGV      8 the most waiters; then 6 a request: holder, request, weight, lease ms, 1 to wait or 0, label
-- Returns   3 a request: 'granted' token slot | 'waiting' position 0 | the reason of a refusal, 0, 0
-- Idempotent: a known request gets its earlier answer, and a new lease.
-- Cost      about 8 calls a batch; O(log n) a request

local holders = {}
for i = 9, #ARGV, 6 do holders[#holders + 1] = ARGV[i] end

local limit, refusal = declare(holders)
promote()
if limit then
  -- The promotion may have emptied the queue.
  limit = declare(holders)
  promote()
end

-- Entries found or added so far in this batch, by holder, and the queue positions assigned to new waiters.
local known, positions, tickets, n = find(holders), {}, {}, #reply

for i = 9, #ARGV, 6 do
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
        tag, a = 'waiting', positions[holder] or redis.call('ZRANK', queue_key, holder)
      end
    end
  elseif not refusal then
    local fits, reason = judge(limit or s.limit, weight, ARGV[i + 4] == '1')
    if limit or reason then
      tag = reason or 'no_permits'
    else
      if s.holders == 0 and s.waiting == 0 then
        s.created[entries_key], s.created[leases_key] = true, true
      end
      if fits then
        tag, a, b = 'granted', take_units(weight)
      else
        if s.waiting == 0 then s.created[queue_key] = true end
        tag, a, positions[holder], s.waiting = 'waiting', s.waiting, s.waiting, s.waiting + 1
        s.last_ticket = math.max(now_us, s.last_ticket + 1)
        tickets[#tickets + 1], tickets[#tickets + 2] = string.format('%.0f', s.last_ticket), holder
      end
      known[holder] = put(holder, fits and a or 0, b, weight, lease, request, session, ARGV[i + 5])
      extend(holder, lease, fits)
    end
  end
  s.recheck = s.recheck or tag == 'waiting'
  reply[n + 1], reply[n + 2], reply[n + 3] = tag, a, b
  n = n + 3
end

-- Written first: while nothing waited no command has read this key, which may be another program's.
if #tickets > 0 then redis.call('ZADD', queue_key, unpack(tickets)) end
write()
