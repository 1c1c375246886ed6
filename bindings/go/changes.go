// Code generated from the documentation of the library by the test vocabulary. DO NOT EDIT.

package permits

import "time"

// SetLimit sets the limit and pins it: from now on declarations of programs are ignored, until [Unpin].
type SetLimit struct {
	// The new limit, at least 1.
	Limit int
	// The version at which the limit has to be. Any unless set.
	IfVersion *int64
}

func (c SetLimit) fields() fields {
	return fields{"change": "set_limit", "limit": c.Limit, "if_version": c.IfVersion}
}

// AdjustLimit adds a number to the limit, and pins the sum as [SetLimit] does. Calls of several sessions add
// up.
type AdjustLimit struct {
	// The number to add to the limit.
	By int
}

func (c AdjustLimit) fields() fields {
	return fields{"change": "adjust_limit", "by": c.By}
}

// Unpin lets programs declare the limit again. A program does so with its next request if its last one was
// granted or queued during the pin, else when it starts again. The limit stays until then.
type Unpin struct{}

func (Unpin) fields() fields {
	return fields{"change": "unpin"}
}

// Pause stops granting, for a reason of at most 1,000 bytes, which may be empty. Holders keep what they hold;
// waiters wait. It stays so until [Resume].
type Pause struct {
	// The time after which the pause ends by itself, 1 ms to 366 days, rounded up to a millisecond. Without end
	// unless set.
	Time time.Duration
	// The reason that people read, at most 1,000 bytes. Empty unless set.
	Reason string
}

func (c Pause) fields() fields {
	return fields{"change": "pause", "time_ms": orNull(milliseconds(c.Time)), "reason": c.Reason}
}

// Resume grants again, beginning with the head of the line.
type Resume struct{}

func (Resume) fields() fields {
	return fields{"change": "resume"}
}

// CloseLine closes the line: waiters are refused with the reason (at most 1,000 bytes), and so are new
// requests, until [OpenLine]. Holders keep what they hold, renew and release.
type CloseLine struct {
	// The reason that people read, at most 1,000 bytes. Empty unless set.
	Reason string
}

func (c CloseLine) fields() fields {
	return fields{"change": "close_line", "reason": c.Reason}
}

// OpenLine opens a closed line.
type OpenLine struct{}

func (OpenLine) fields() fields {
	return fields{"change": "open_line"}
}

// SetAlert sets the thresholds beyond which the semaphore needs a look. They replace the earlier ones, so a
// threshold that you do not give is removed. The store keeps them as it keeps a pin. permits serve, its page
// and its alerts use them in place of their own. They change no grant.
type SetAlert struct {
	// The longest wait that needs no look, 1 ms to 366 days. None unless set.
	Wait time.Duration
	// The most waiters that need no look, at least 1. None unless set.
	Waiting int
}

func (c SetAlert) fields() fields {
	return fields{"change": "set_alert", "wait_ms": orNull(milliseconds(c.Wait)), "waiting": orNull(c.Waiting)}
}

// SetLane sets the limit and the floor of a lane, and pins them: the store then ignores the bounds that
// requests name, until [UnpinLane]. They replace the earlier bounds: a bound that you do not give is removed.
// All that the lane holds counts for them. The store keeps them as it keeps a pinned limit.
type SetLane struct {
	// The lane, 1 to 120 bytes.
	Lane string
	// The most units that the lane may hold, at least 1. None unless set.
	Limit int
	// The units up to which the lane is served before others, at most the limits. None unless set.
	Floor int
}

func (c SetLane) fields() fields {
	return fields{"change": "set_lane", "lane": c.Lane, "limit": orNull(c.Limit), "floor": orNull(c.Floor)}
}

// UnpinLane lets requests name the limit and the floor of a lane again. The lane keeps its bounds until one
// of its requests names others, or until nobody holds or waits in it.
type UnpinLane struct {
	// The lane, 1 to 120 bytes.
	Lane string
}

func (c UnpinLane) fields() fields {
	return fields{"change": "unpin_lane", "lane": c.Lane}
}

// Revoke revokes a holder's permit, or a waiter's request, and sends it the reason (at most 1,000 bytes).
type Revoke struct {
	// The holder or waiter, 1 to 200 bytes.
	Holder string
	// The token of a grant of this holder that cools: that grant is freed, in place of a permit or a request.
	// None unless set.
	Token int64
	// The reason that people read, at most 1,000 bytes. Empty unless set.
	Reason string
}

func (c Revoke) fields() fields {
	return fields{"change": "revoke", "holder": c.Holder, "token": orNull(c.Token), "reason": c.Reason}
}

// Delete forgets the semaphore at once, with all that the store knows of it: the limit, an operator's pins, a
// pause, a closed line, and an alert. Refused while units are held or cool, or requests wait.
type Delete struct {
	// Whether to delete the semaphore even if it cannot be read, and then even if it is in use: more than the
	// limit may be held until the leases have ended. False unless set.
	Unreadable bool
}

func (c Delete) fields() fields {
	return fields{"change": "delete", "unreadable": c.Unreadable}
}
