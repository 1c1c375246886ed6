-- acquire: grants each request in order, or stands it in line, or refuses it. A newcomer never overtakes.
-- KEYS      as in begin.lua
-- ARGV      8 the most waiters; then 5 a request: holder, request, weight, lease ms, 1 to wait or 0
-- Returns   3 a request: 'granted' token slot | 'waiting' position 0 | the reason of a refusal, 0, 0
-- Idempotent: a known request gets its earlier answer, and a new lease.
-- Cost      about 8 calls a batch; O(log n) a request

local queue_max = tonumber(ARGV[8])
local holders = {}
for i = 9, #ARGV, 5 do holders[#holders + 1] = ARGV[i] end

local refusal = declare()
promote()
local capacity = capacity()

local known, new, extended, tickets, answers, waits = find(holders), {}, {}, {}, {}, false
local function answer(tag, a, b)
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3] = tag, a or 0, b or 0
  waits = waits or tag == 'waiting'
end

for i = 9, #ARGV, 5 do
  local holder, request = ARGV[i], ARGV[i + 1]
  local weight, wait = tonumber(ARGV[i + 2]), ARGV[i + 4] == '1'
  local entry = known[holder]
  local fits = s.waiting == 0 and s.held + weight <= capacity and slot_left()
  if entry then
    if entry.request ~= request then
      answer('already_held')
    else
      extended[#extended + 1] = entry
      if entry.token then
        answer('granted', entry.token, entry.slot)
      else
        answer('waiting', entry.position or redis.call('ZRANK', queue_key, holder))
      end
    end
  elseif refusal then
    answer(refusal)
  elseif weight > s.limit then
    answer('exceeds_limit')
  elseif not fits and not wait then
    answer('no_permits')
  elseif not fits and s.waiting >= queue_max then
    answer('queue_full')
  else
    touch_entries()
    entry = { holder = holder, request = request, session = session, weight = weight, lease = ARGV[i + 3] }
    known[holder], new[#new + 1], extended[#extended + 1] = entry, entry, entry
    if fits then
      give(entry)
      answer('granted', entry.token, entry.slot)
    else
      if s.waiting == 0 then touched[queue_key] = true end
      s.last_ticket, entry.position, s.waiting = s.last_ticket + 1, s.waiting, s.waiting + 1
      tickets[#tickets + 1] = s.last_ticket
      tickets[#tickets + 1] = holder
      answer('waiting', entry.position)
    end
  end
end

write(new, extended)
if #tickets > 0 then redis.call('ZADD', queue_key, unpack(tickets)) end
return finish(answers, waits)
