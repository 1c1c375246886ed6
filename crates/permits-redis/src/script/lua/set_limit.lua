-- set_limit: sets or adjusts the limit and pins it, or lifts the pin. Growing grants at once; shrinking
-- revokes no permit, and refuses a waiter heavier than the new limit when it comes to the head of the queue
-- or renews.
-- KEYS      as in read.lua
-- ARGV      8 request; 9 label of the session; 10 'set' | 'adjust' | 'unpin'; 11 the limit, a difference or
--           0; 12 the version that the limit must have, or -1
-- Returns   'done' limit version | 'other_version' 0 0 | 'no_limit' 0 0 | 'out_of_range' 0 0
-- Idempotent: a request that is remembered gets its earlier answer. Without a version, a change without
--   effect is done.
-- Cost      about 7 calls, 5 more if it grants

local MAX_LIMIT = 4294967295

-- The tag of the answer.
local function change()
  local kind, number, expected = ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
  if expected ~= -1 and expected ~= s.limit_version then return 'other_version' end
  local limit, pinned = s.limit, kind == 'unpin' and 0 or 1
  if kind == 'set' then limit = number end
  if kind == 'adjust' then
    if s.limit == 0 then return 'no_limit' end
    limit = s.limit + number
    if limit < 1 or limit > MAX_LIMIT then return 'out_of_range' end
  end
  if expected ~= -1 or s.limit ~= limit or s.pinned ~= pinned then
    s.limit, s.pinned, s.limit_version = limit, pinned, s.limit_version + 1
    local what = pinned == 1 and 'limit' or 'unpin'
    remember('limit', what, string.format('%.0f', limit), string.format('%.0f', s.limit_version), '')
  end
  return 'done'
end

allow_at_maxmemory()
local limit, version = recall()
local tag = limit and 'done' or change()
promote()
if tag ~= 'done' then
  limit, version = 0, 0
elseif not limit then
  limit, version = s.limit, s.limit_version
end
reply[9], reply[10], reply[11] = tag, tonumber(limit), tonumber(version)
