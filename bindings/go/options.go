package permits

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// A request is a line that acquires. docs/languages/any.md describes its fields.
type request struct {
	ID           int64    `json:"id"`
	Acquire      string   `json:"acquire"`
	Limit        int      `json:"limit,omitempty"`
	RequireLimit bool     `json:"require_limit,omitempty"`
	Weight       *int     `json:"weight,omitempty"`
	Timeout      *float64 `json:"timeout_ms,omitempty"`
	Holder       *string  `json:"holder,omitempty"`
	Supersede    *string  `json:"supersede,omitempty"`
	Label        *string  `json:"label,omitempty"`
	Lane         *string  `json:"lane,omitempty"`
	Share        *int     `json:"share,omitempty"`
	LaneLimit    *int     `json:"lane_limit,omitempty"`
	LaneFloor    *int     `json:"lane_floor,omitempty"`
	LaneWaiters  *int     `json:"lane_waiters,omitempty"`
	Lease        *float64 `json:"lease_ms,omitempty"`
	AtLeast      *float64 `json:"at_least_ms,omitempty"`
	MaxHold      *float64 `json:"max_hold_ms,omitempty"`
}

// check refuses texts that JSON would silently change.
func (r *request) check() error {
	for _, text := range []*string{&r.Acquire, r.Holder, r.Supersede, r.Label, r.Lane} {
		if text != nil && !utf8.ValidString(*text) {
			return &Error{Semaphore: r.Acquire, Reason: fmt.Sprintf("%q is not UTF-8", *text), kind: ErrInvalid}
		}
	}
	return nil
}

// An Option is an option of a request for a permit.
type Option func(*request)

func milliseconds(time time.Duration) *float64 {
	ms := float64(time) / 1e6
	return &ms
}

// Weight is the number of units: at least 1, at most the limit. 1 unless set.
func Weight(units int) Option { return func(r *request) { r.Weight = &units } }

// Timeout is the longest wait in line; without limit unless set. With 0 the request does not wait: it is
// granted now, or refused.
//
// The error is then ErrNotNow. The end of the context ends the wait, too, with an error of the
// context.
func Timeout(wait time.Duration) Option {
	return func(r *request) { r.Timeout = milliseconds(wait) }
}

// Lane is a lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests
// of one lane are granted in the order in which they came. Lanes that wait get units in proportion to their
// shares, so a thousand requests of one tenant do not stand before the first of another. Requests without a
// lane are one lane together.
func Lane(name string) Option { return func(r *request) { r.Lane = &name } }

// Share is the share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets
// ten times the units of one with the share 1. Use the same share for all requests of a lane.
//
// Use it together with Lane.
func Share(share int) Option { return func(r *request) { r.Share = &share } }

// LaneLimit is the most units that the requests of the lane hold together, at least 1; without limit unless
// set. While a lane is at its limit, its requests wait, and those of other lanes pass them. Use the same
// limit for all requests of a lane: the latest counts.
//
// Use it together with Lane.
func LaneLimit(units int) Option { return func(r *request) { r.LaneLimit = &units } }

// LaneFloor is the units up to which the lane is served before others, at most the limits of the lane and of
// the semaphore; 0 unless set, which names no floor. While the lane holds fewer, it gets the next units. Use
// the same floor for all requests of a lane: the latest counts.
//
// It needs Lane.
func LaneFloor(units int) Option { return func(r *request) { r.LaneFloor = &units } }

// LaneWaiters is the most requests of the lane that wait, this one included, at least 1; without bound unless
// set. The next one is refused, so one tenant cannot fill the line for all.
func LaneWaiters(count int) Option { return func(r *request) { r.LaneWaiters = &count } }

// Lease is the lease: how long a permit, or a place in line, stays valid if your process dies and nothing
// renews it. 100 ms to 1 day.
//
// 15 s unless set.
func Lease(lease time.Duration) Option { return func(r *request) { r.Lease = milliseconds(lease) } }

// AtLeast is the time for which the grant counts, up to 1 day; 0 unless set. If the permit is released or
// lost earlier, its units *cool*: they stay taken until that time has passed since the grant. For example, a
// limit of 100 and one minute admit at most 100 in any minute.
func AtLeast(time time.Duration) Option { return func(r *request) { r.AtLeast = milliseconds(time) } }

// MaxHold is the longest time for which the permit is held, at least 100 ms; without limit unless set. The
// permit is lost then, even if it is renewed: for work that may hang.
func MaxHold(time time.Duration) Option { return func(r *request) { r.MaxHold = milliseconds(time) } }

// Holder is the name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit
// of a semaphore: while it holds or waits, a second request with its name is refused. Unique unless set.
//
// The second request gets the error ErrNotNow.
func Holder(name string) Option { return func(r *request) { r.Holder = &name } }

// Label is a note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders
// may have the same label. An empty label means no label.
//
// The label is the text of WithLabel unless set.
func Label(text string) Option { return func(r *request) { r.Label = &text } }

// Supersede is a key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each
// key: a new request takes the place of the one that waits, which is refused. A permit with the key stays
// held. The request must wait: use a timeout above 0, or no timeout.
func Supersede(key string) Option { return func(r *request) { r.Supersede = &key } }

// RequireLimit refuses the request with ErrInvalid if the limit in force is not the limit of the Semaphore,
// for example because an operator has set another one.
func RequireLimit() Option { return func(r *request) { r.RequireLimit = true } }
