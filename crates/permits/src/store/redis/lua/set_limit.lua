-- set_limit: sets and pins the limit, or lifts the pin. Growing grants at once; shrinking revokes nobody, and
-- refuses a waiter heavier than the new limit when it comes to the head of the line or renews.
-- KEYS      as in begin.lua
-- ARGV      8 the new limit, or 0 to lift the pin; 9 the version it must have, or -1
-- Returns   1 if done, 0 if the version is another
-- Idempotent: what is so already is done.
-- Cost      about 6 calls, 5 more if it grants

local pin = ARGV[8] ~= '0' and 1 or 0
local limit, expected = pin == 1 and tonumber(ARGV[8]) or s.limit, tonumber(ARGV[9])

allow_at_maxmemory()
local done = s.limit == limit and s.pinned == pin
local as_expected = expected == -1 or expected == s.limit_version
if not done and as_expected then
  s.limit, s.pinned, s.limit_version = limit, pin, s.limit_version + 1
end
promote()
local reply, somebody_waits = { 0, 0, 0, 0, 0, 0, (done or as_expected) and 1 or 0 }, false
