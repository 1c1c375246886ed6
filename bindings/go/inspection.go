// Code generated from docs/reference/status.schema.json by the test inspections. DO NOT EDIT.

package permits

// Alert is the thresholds, set by an operator, beyond which the semaphore needs a look.
type Alert struct {
	// The longest wait that needs no look, in milliseconds, 1 ms to 366 days. None unless set.
	WaitMS *int64 `json:"wait_ms"`
	// The most waiters that need no look, at least 1. None unless set.
	Waiting *int `json:"waiting"`
}

// Waits is the waits of requests that were granted out of the line.
type Waits struct {
	// The sum of all waits, in microseconds.
	TotalUS int64 `json:"total_us"`
	// The number of waits of at most 0.01, 0.1, 1, 10 and 100 s, and of longer ones. Each wait counts once, at
	// the lowest bound that it does not exceed. After 4,294,967,295 a number begins again at 0.
	Numbers []int64 `json:"numbers"`
}

// HolderInfo is a holder.
type HolderInfo struct {
	// The name of the holder.
	Holder string `json:"holder"`
	// The number of units.
	Weight int `json:"weight"`
	// The slot.
	Slot int `json:"slot"`
	// The fencing token.
	Token int64 `json:"token"`
	// The rest of the lease, in milliseconds; for a grant that cools, the time until its units are free.
	LeaseRemainingMS int64 `json:"lease_remaining_ms"`
	// True if the holder has gone, and its grant still counts: see AtLeast.
	Cooling bool `json:"cooling"`
	// True if the client may keep the permit without using it; false while a request waits, and while the
	// semaphore is paused, closed or recovering, or has a pinned lane.
	MayBeKept bool `json:"may_be_kept"`
	// The time since the grant, in milliseconds, by the store's clock.
	AgeMS int64 `json:"age_ms"`
	// The label; nil if there is none.
	Label *string `json:"label"`
	// The lane of the request; nil if it names no lane.
	Lane *string `json:"lane"`
}

// WaiterInfo is a waiter.
type WaiterInfo struct {
	// The name of the waiter.
	Holder string `json:"holder"`
	// The units that it asks for.
	Weight int `json:"weight"`
	// The number of waiters before it.
	Position int `json:"position"`
	// The time since it was queued, in milliseconds, by the store's clock.
	AgeMS int64 `json:"age_ms"`
	// The label; nil if there is none.
	Label *string `json:"label"`
	// The lane of the request; nil if it names no lane.
	Lane *string `json:"lane"`
}

// LaneInfo is a lane.
type LaneInfo struct {
	// The name of the lane; nil for the requests that name no lane.
	Lane *string `json:"lane"`
	// The number of waiters in the lane.
	Waiting int `json:"waiting"`
	// The units that the lane holds and that count for its limit and floor. Without these, the units of its
	// listed holders.
	Held int `json:"held"`
	// The most units that the lane may hold; nil without a limit of its own.
	Limit *int `json:"limit"`
	// The units up to which the lane is served before others; 0 without a floor.
	Floor int `json:"floor"`
	// True if an operator has set the limit and the floor, so that requests do not change them.
	Pinned bool `json:"pinned"`
}

// ChangeInfo is a change by an operator.
type ChangeInfo struct {
	// The change.
	Change string `json:"change"`
	// The label of the client that made it, else its host name and process id.
	By string `json:"by"`
	// The change as a text for people, such as: set the limit to 4.
	Text string `json:"text"`
	// The time of the change, in milliseconds since 1970, by the store's clock.
	AtMS int64 `json:"at_ms"`
	// The time since the change, in milliseconds, by the store's clock.
	AgeMS int64 `json:"age_ms"`
	// The limit that was set; nil for other changes.
	Limit *int `json:"limit"`
	// The holder or waiter that was revoked; nil for other changes.
	Holder *string `json:"holder"`
	// The reason of a pause, a closed line or a revocation, possibly empty; nil for other changes.
	Reason *string `json:"reason"`
}

// Inspection is the state of a semaphore.
type Inspection struct {
	// The name of the semaphore.
	Name string `json:"name"`
	// The number of units that may be held at once; nil if no limit is stored.
	Limit *int `json:"limit"`
	// The version of the limit: rises with every change of the limit or its pin.
	LimitVersion int64 `json:"limit_version"`
	// True if an operator has pinned the limit.
	Pinned bool `json:"pinned"`
	// True if granting is stopped.
	Paused bool `json:"paused"`
	// The time until the pause ends by itself, in milliseconds; nil if it has no end, or the semaphore is not
	// paused.
	PauseRemainingMS *int64 `json:"pause_remaining_ms"`
	// The reason of the pause, possibly empty; nil if the semaphore is not paused.
	PauseReason *string `json:"pause_reason"`
	// Why the line is closed, possibly empty; nil if it is open.
	Closed *string `json:"closed"`
	// The thresholds, set by an operator, beyond which the semaphore needs a look.
	Alert Alert `json:"alert"`
	// The number of units that are taken: by holders, kept by a client, or cooling.
	Held int `json:"held"`
	// The units among Held whose holders have left, but which stay taken: see AtLeast.
	Cooling int `json:"cooling"`
	// The held units of the listed holders whose clients may keep them without using them: see Keep.
	MayBeKept int `json:"may_be_kept"`
	// The number of waiters.
	Waiting int `json:"waiting"`
	// The longest age of the listed holders that do not cool, in milliseconds; nil if there is none.
	OldestHolderAgeMS *int64 `json:"oldest_holder_age_ms"`
	// The longest age of the listed waiters, in milliseconds; nil if there is no waiter.
	OldestWaiterAgeMS *int64 `json:"oldest_waiter_age_ms"`
	// The time for which the store still grants no free units after a restart, in milliseconds; 0 otherwise.
	RecoveringMS int64 `json:"recovering_ms"`
	// The number of permits granted since the store has the semaphore. It and the other three begin again at 0
	// when the store forgets an idle semaphore, or loses its state.
	Grants int64 `json:"grants"`
	// The number of requests refused since then: at their arrival, or later because of a lowered limit, a closed
	// line, or a newer request with their supersede key.
	Refused int64 `json:"refused"`
	// The number of holders and waiters whose lease has ended since then, for example because a program crashed.
	Expired int64 `json:"expired"`
	// The number of holders, waiters and cooling grants that operators have revoked since then.
	Revoked int64 `json:"revoked"`
	// The waits of requests that were granted out of the line.
	Waits Waits `json:"waits"`
	// The first 1,000 holders, by the end of their leases.
	Holders []HolderInfo `json:"holders"`
	// The first 1,000 waiters, in order; of a line with lanes, in the order that equal shares give.
	Waiters []WaiterInfo `json:"waiters"`
	// The lanes of the waiters and of the listed holders: up to 32, and all that are pinned; those with the most
	// waiters first, then those with the most units. Empty if there is only the lane without a name.
	Lanes []LaneInfo `json:"lanes"`
	// The last changes by operators, the newest first: 32, those of the last minute up to 256, and of each kind
	// (the limit, a pause, a closed line, the alert, lanes, a revocation) at least the last one.
	Changes []ChangeInfo `json:"changes"`
}
