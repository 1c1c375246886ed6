-- view: the state as it is now, for a script that writes nothing: without the entries whose leases have
-- ended, which the next command that may write reaps. As there, units of some holders begin to cool.

-- How many entries are read at once.
local AT_ONCE = 1000
-- The entries that have ended; the number of waiters among them, in all and by lane; the units of holders
-- among them that counted for the bounds of each lane; and the holders that cool from then on: their names,
-- and the ms at which they stop.
local ended, waiters_ended, ended_in, freed_in, cooled = {}, 0, {}, {}, {}

local function pass_over(holder)
  local token, slot, weight, _, _, _, _, at_least, _, keeps, lane, _, _, _, of_lane = parts(holder, known[holder])
  local tab = string.find(holder, '\t', 1, true)
  local until_ms = tab and 0 or counts_until(token, at_least)
  ended[holder] = true
  if not tab then s.expired = s.expired + 1 end
  spend_tokens(token, keeps)
  if until_ms > now_ms then
    local cooling = string.format('%s\t%.0f', holder, token)
    known[cooling], cooled[#cooled + 1], s.cooling = known[holder], { cooling, until_ms }, s.cooling + weight
  elseif token > 0 then
    s.held, s.cooling = s.held - weight, s.cooling - (tab and weight or 0)
    if of_lane then freed_in[lane] = (freed_in[lane] or 0) + weight end
  else
    waiters_ended, ended_in[lane] = waiters_ended + 1, (ended_in[lane] or 0) + 1
  end
end

if s.existed and s.earliest <= now_ms then
  local expired = redis.call('ZREVRANGEBYSCORE', leases_key, now_ms, -now_ms, 'LIMIT', 0, $VIEW_MAX)
  for first = 1, #expired, AT_ONCE do
    local some = { unpack(expired, first, math.min(first + AT_ONCE - 1, #expired)) }
    find(some)
    for _, holder in ipairs(some) do
      if known[holder] then pass_over(holder) end
    end
  end
end

-- The changed records below are never written.
s.waiting = s.waiting - waiters_ended
for name, number in pairs(lanes > 0 and ended_in or {}) do
  local record = record_of(name)
  record.waiting = record.waiting - number
  if record.waiting == 0 then lanes = lanes - 1 end
end

-- The members that have not ended, with their scores; at most `max`.
local function alive(scored, max)
  local found = {}
  for i = 1, #scored, 2 do
    if not ended[scored[i]] and #found < 2 * max then found[#found + 1], found[#found + 2] = scored[i], scored[i + 1] end
  end
  return found
end

-- The holders whose leases end first, and what cools; at most `max`.
local function holders_alive(max)
  -- The key may have other members, if the other keys have vanished.
  if s.holders == 0 then return {} end
  local found = redis.call('ZRANGEBYSCORE', leases_key, string.format('(%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, max)
  if #cooled == 0 then return found end
  for i = 1, #found, 2 do cooled[#cooled + 1] = { found[i], tonumber(found[i + 1]) } end
  table.sort(cooled, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
  local first = {}
  for i = 1, math.min(max, #cooled) do first[2 * i - 1], first[2 * i] = cooled[i][1], cooled[i][2] end
  return first
end
