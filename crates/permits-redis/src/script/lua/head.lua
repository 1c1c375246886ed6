-- head: the fields with which a reply begins. Finish sets two of them again.
-- { now, sequence, recheck_ms or -1, limit, limit_version, 1 if it is pinned and 2 if what is released may be
--   kept, recovering ms, the limit that the declaration has replaced or 0, answers… }
-- If a request has replaced the bounds of a lane, a text takes the place of the replaced limit: that limit,
-- the former limit and floor of the lane, and its name.

local keepable = s.waiting == 0 and s.held <= s.limit and s.paused == 0 and not s.reason and not s.recovering and s.pins == 0 and not s.in_the_way
reply[1], reply[2], reply[3], reply[4], reply[5], reply[6], reply[7], reply[8] =
  math.max(now_us, s.last_token), s.sequence, -1, s.limit, s.limit_version, s.pinned + (keepable and 2 or 0), math.max(0, s.recovering_until - now_ms), s.replaced_bounds or s.replaced or 0
