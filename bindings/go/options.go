// Code generated from the documentation of the library by the test vocabulary. DO NOT EDIT.

package permits

import "time"

// Weight is the number of units: at least 1, at most the limit. 1 unless set.
func Weight(weight int) Option {
	return func(f fields) { f["weight"] = weight }
}

// Timeout is the longest wait in line; without limit unless set. With 0 the request does not wait: it is
// granted now, or refused.
//
// The error is then [ErrNotNow]. The end of the context ends the wait, too.
func Timeout(timeout time.Duration) Option {
	return func(f fields) { f["timeout_ms"] = milliseconds(timeout) }
}

// Holder is the name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit
// of a semaphore: while it holds or waits, a second request with its name is refused. Unique unless set.
//
// The second request gets the error [ErrNotNow].
func Holder(holder string) Option {
	return func(f fields) { f["holder"] = holder }
}

// Label is a note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders
// may have the same label. An empty label means no label.
//
// The label is the text of [WithLabel] unless set.
func Label(label string) Option {
	return func(f fields) { f["label"] = label }
}

// Lane is a lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests
// of one lane are granted in the order in which they came. Lanes that wait get units in proportion to their
// shares, so a thousand requests of one tenant do not stand before the first of another. Requests without a
// lane are one lane together.
func Lane(lane string) Option {
	return func(f fields) { f["lane"] = lane }
}

// Share is the share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets
// ten times the units of one with the share 1. Use the same share for all requests of a lane.
//
// It needs [Lane].
func Share(share int) Option {
	return func(f fields) { f["share"] = share }
}

// LaneLimit is the most units that the requests of the lane hold together, at least 1; without limit unless
// set. While a lane is at its limit, its requests wait, and requests of other lanes pass them. Use the same
// limit for all requests of a lane: the latest counts.
//
// It needs [Lane].
func LaneLimit(laneLimit int) Option {
	return func(f fields) { f["lane_limit"] = laneLimit }
}

// LaneFloor is the units up to which the lane is served before others, at most the limits of the lane and of
// the semaphore. Unless you set it, or with 0, the request names no floor. While the lane holds fewer, it
// gets the next units. Use the same floor for all requests of a lane: the latest counts.
//
// It needs [Lane].
func LaneFloor(laneFloor int) Option {
	return func(f fields) { f["lane_floor"] = laneFloor }
}

// LaneWaiters is the most requests of the lane that wait, this one included, at least 1; without bound unless
// set. The next one is refused, so one tenant cannot fill the line for all.
//
// It needs [Lane].
func LaneWaiters(laneWaiters int) Option {
	return func(f fields) { f["lane_waiters"] = laneWaiters }
}

// Lease is the lease: how long a permit, or a place in line, stays valid if your process dies and nothing
// renews it. 100 ms to 1 day.
//
// 15 s unless set.
func Lease(lease time.Duration) Option {
	return func(f fields) { f["lease_ms"] = milliseconds(lease) }
}

// AtLeast is the time for which the grant counts, up to 1 day; 0 unless set. If the permit is released or
// lost earlier, its units *cool*: they stay taken until that time has passed since the grant. For example, a
// limit of 100 and one minute admit at most 100 in any minute.
func AtLeast(atLeast time.Duration) Option {
	return func(f fields) { f["at_least_ms"] = milliseconds(atLeast) }
}

// MaxHold is the longest time for which the permit is held, at least 100 ms; without limit unless set. The
// permit is lost then, even if it is renewed: for work that may hang.
func MaxHold(maxHold time.Duration) Option {
	return func(f fields) { f["max_hold_ms"] = milliseconds(maxHold) }
}

// Supersede is a key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each
// key: a new request takes the place of the one that waits, which is refused. A permit with the key stays
// held. The request must wait: use a timeout above 0, or no timeout.
func Supersede(supersede string) Option {
	return func(f fields) { f["supersede"] = supersede }
}
