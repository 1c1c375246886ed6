-- acquire: grants, queues or refuses each request, in order. A newcomer never overtakes. A declared limit
-- counts if it lets one of the requests in, since a refused request changes nothing.
-- KEYS      as in read.lua
-- ARGV      8 the most waiters; 9 of each request 0 if it may not wait, 1 if it may, 2 if it has a key and
--           supersedes the waiter with that, 3 if it is refused for that waiter; behind these, if a request
--           names it, of each as <I4 the most waiters in its lane, this one included, or 0;
--           then 10… 2 a request: holder, entry of a waiter as in entries.lua
-- Returns   3 a request: 'granted' token slot | 'waiting' position 0 | 'line_closed' reason 0 | 'cooling'
--           ms 0 | 'paused' or 'lane_full' ms, or -1, 0 | 'exceeds_lane_limit' limit 0 | the reason of a
--           refusal, 0, 0
-- Idempotent: a known request gets its earlier answer, and a new lease.
-- Cost      4 to 7 calls a batch in the ordinary course, about 9 in the general; O(log n) a request

first_lane = nil   -- as the ordinary course has read it
local limit, refusal = declare()
promote()
if limit then
  -- The promotion may have emptied the queue.
  limit = declare()
  promote()
end

for k = 1, count do
  local holder, entry = named[k], given[k]
  local tag, first, second = refusal, 0, 0
  settle()
  if known[holder] then
    local token, slot, _, since_lease, since = parts(holder, known[holder])
    local _, _, _, _, request = parts(holder, entry)
    if since ~= request then
      tag = 'already_held'
    else
      extend(holder, since_lease, token > 0)
      if token > 0 then
        tag, first, second = 'granted', token, slot
      else
        tag, first = 'waiting', lanes == 0 and positions[holder] or place_of(holder, known[holder], s.waiting - 1)
      end
    end
  elseif not refusal then
    local weight, lease = struct.unpack('<I4I4', entry, 2)
    local fits, reason, ends_in, key, superseded = judge(limit or s.limit, k)
    -- A later request of the batch may have given its lane other bounds.
    if not limit and not reason and let_in[k] then fits, reason, ends_in, key, superseded = judge(s.limit, k, true) end
    if limit or reason then
      tag, first = reason or 'no_permits', ends_in or 0
    else
      if s.holders == 0 and s.waiting == 0 then s.created[leases_key] = true end
      if fits then
        declare_new_lane(holder, entry, k)
        tag, first, second = 'granted', grant(holder, entry, weight, lease)
      else
        tag, first = enqueue(holder, entry, lease)
        local is_late = tag == 'waiting' and declare_new_lane(holder, entry, k)
        if tag == 'waiting' and superseded then
          tag, first, second = supersede(superseded, holder, key)
        elseif tag == 'waiting' then
          if key then s.by_key[key] = holder end
          if is_late then
            tag, first, second = promote_with(holder)
          elseif bounded_lanes > 0 and lanes > 0 then
            settle()
            first = place_of(holder, known[holder], s.waiting - 1)
          end
        end
      end
    end
  end
  if tag == 'line_closed' then first = s.reason end
  if tag ~= 'granted' and tag ~= 'waiting' then s.refused = s.refused + 1 end
  if tag == 'waiting' then s.foremost = math.min(s.foremost or first, first) end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = tag, first, second
end

-- Written first: while nothing waited no command has read this key, which may be another program's.
write_tickets()
write()
