-- delete: forgets an idle semaphore, with a pinned limit, a pause and a closed line. Not while recovering,
-- because holders that the store forgot may be alive. If asked, one that cannot be read, even if it is in
-- use.
-- KEYS      as in read.lua
-- ARGV      8 1 to delete one that cannot be read, else 0
-- Returns   'deleted' 0 0 | 'unknown' 0 0 | 'in_use' held waiting | 'recovering' 0 0
-- Idempotent: called again, it finds nothing.
-- Cost      about 5 calls, 5 more if it grants

allow_at_maxmemory()
promote()
local tag, held, waiting = 'deleted', 0, 0
if not s.existed and not s.lost then
  tag = 'unknown'
elseif s.held > 0 or s.waiting > 0 then
  tag, held, waiting, s.in_the_way = 'in_use', s.held, s.waiting, true
elseif s.recovering then
  tag = 'recovering'
else
  redis.call('DEL', unpack(KEYS))
  s.deleted, s.limit, s.limit_version, s.pinned = true, 0, 0, 0
end
reply[9], reply[10], reply[11] = tag, held, waiting
