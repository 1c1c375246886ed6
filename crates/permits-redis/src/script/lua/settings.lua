-- The settings that an operator changes. Each function takes the values that set.lua describes. It returns
-- why the change is refused, or nothing if the change is made or has no effect.

local settings = {}

-- A higher limit grants at once. A lower limit revokes no permit, and refuses a waiter heavier than the limit
-- when it comes to the head of the queue or renews.
function settings.limit(kind, number, expected)
  local MAX_LIMIT = 4294967295
  number, expected = tonumber(number), tonumber(expected)
  if expected ~= -1 and expected ~= s.limit_version then return 'other_version' end
  local limit, pinned = s.limit, kind == 'unpin' and 0 or 1
  if kind == 'set' then limit = number end
  if kind == 'adjust' then
    if s.limit == 0 then return 'no_limit' end
    limit = s.limit + number
    if limit < 1 or limit > MAX_LIMIT then return 'out_of_range' end
  end
  if expected == -1 and s.limit == limit and s.pinned == pinned then return end
  s.limit, s.pinned, s.limit_version = limit, pinned, s.limit_version + 1
  remember('limit', pinned == 1 and 'limit' or 'unpin', string.format('%.0f', limit), string.format('%.0f', s.limit_version), '')
end

-- Two pauses do not add up: the later end counts.
function settings.pause(for_ms, reason)
  local until_ms = for_ms == '0' and 0 or for_ms == 'forever' and $PAUSED or now_ms + tonumber(for_ms)
  local has_effect = until_ms > s.paused or until_ms == s.paused and reason ~= pause_reason()
  if until_ms == 0 then has_effect = s.paused > 0 end
  if not has_effect then return end
  s.paused = until_ms
  -- A pause keeps the state from expiring. A pause that an operator ends early no longer does so for the rest
  -- of its time.
  s.expires, s.prolonged = math.min(s.expires, now_ms + 4 * s.lease_max), true
  if until_ms > 0 and until_ms < $PAUSED then
    s.expires, s.new_turn = math.max(s.expires, until_ms), true
  end
  remember('pause', until_ms > 0 and 'pause' or 'resume', until_ms > 0 and string.format('%.0f', until_ms) or '', '', until_ms > 0 and reason or '')
end

-- The promotion refuses the waiters of a closed line, the head of the queue first.
function settings.line(closes, reason)
  if closes == '0' then reason = nil end
  if s.reason == reason then return end
  if not reason then redis.call('HDEL', state_key, '$REASON') end
  s.reason, s.reason_stored = reason, false
  remember('line', reason and 'close' or 'open', '', '', reason or '')
end

-- Scripts decide nothing by the alert. It is for programs that watch semaphores.
function settings.alert(wait, waiting)
  if s.alert_wait == tonumber(wait) and s.alert_waiting == tonumber(waiting) then return end
  s.alert_wait, s.alert_waiting = tonumber(wait), tonumber(waiting)
  remember('alert', 'set', wait, waiting, '')
end
