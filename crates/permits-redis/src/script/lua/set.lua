-- set: changes a setting for an operator, and grants or refuses the waiters that it lets in or shuts out.
-- KEYS      as in read.lua
-- ARGV      8 request; 9 label of the session; 10 the setting, whose value follows:
--           'limit'  11 'set' | 'adjust' | 'unpin'; 12 the limit, a difference or 0; 13 the version that the
--                    limit must have, or -1
--           'pause'  11 the ms until the pause ends, 'forever', or 0 to resume; 12 reason
--           'line'   11 1 to close, 0 to open; 12 reason
--           'alert'  11 the longest wait in ms; 12 the most waiters; 0 for no threshold
--           'lane'   11 lane; 12 its limit; 13 its floor; 0 for no bound, and both are 0 to lift the pin
-- Returns   'done' limit version, both as they are after the change | 'other_version' 0 0 | 'no_limit' 0 0 |
--           'out_of_range' 0 0 | 'floor_above_limit' 0 0 | 'too_many_pins' 0 0
-- Idempotent: a request that is remembered gets its earlier answer. A change that changes nothing is 'done'
--   and is not remembered, unless it is a limit with a version: this always makes a new version.
-- Cost      about 7 calls, 5 more if it grants or refuses; for a lane 2 more for each 1,000 holders

allow_at_maxmemory()
local limit, version, part = recall()
local refused = not part and settings[ARGV[10]](ARGV[11], ARGV[12], ARGV[13])
if refused then
  limit, version = 0, 0
elseif part ~= 'limit' then
  limit, version = s.limit, s.limit_version
end
promote()
reply[9], reply[10], reply[11] = refused or 'done', tonumber(limit), tonumber(version)
