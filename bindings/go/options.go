package permits

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// A request is a line that acquires. Its fields are those of docs/hold.md.
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
	Lease        *float64 `json:"lease_ms,omitempty"`
	AtLeast      *float64 `json:"at_least_ms,omitempty"`
	MaxHold      *float64 `json:"max_hold_ms,omitempty"`
}

// check refuses texts that JSON would change without a word.
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

// Weight requests so many units instead of 1.
func Weight(units int) Option { return func(r *request) { r.Weight = &units } }

// Timeout limits the wait, and ends it with ErrNotNow. It is beside the context, whose end is an error
// of the context.
func Timeout(wait time.Duration) Option {
	return func(r *request) { r.Timeout = milliseconds(wait) }
}

// Lane names the lane of the line in which the request waits. Lanes take turns, so a caller with many
// requests does not keep others waiting.
func Lane(name string) Option { return func(r *request) { r.Lane = &name } }

// Share is the share of the request's lane, 1 to 1,000. It needs Lane.
func Share(share int) Option { return func(r *request) { r.Share = &share } }

// Lease is the time for which the permit lasts without a renewal: 15 seconds unless set. It is the time
// for which a machine that has crashed keeps it.
func Lease(lease time.Duration) Option { return func(r *request) { r.Lease = milliseconds(lease) } }

// AtLeast lets the grant count for this time, also if it is released earlier. It makes a rate of the
// limit: so many in a minute.
func AtLeast(time time.Duration) Option { return func(r *request) { r.AtLeast = milliseconds(time) } }

// MaxHold is the longest time for which the permit is held. Then it is lost.
func MaxHold(time time.Duration) Option { return func(r *request) { r.MaxHold = milliseconds(time) } }

// Holder names the holder. A name that holds or waits already is refused with ErrNotNow. Without it,
// the name is unique.
func Holder(name string) Option { return func(r *request) { r.Holder = &name } }

// Label is a text that operators see beside the holder.
func Label(text string) Option { return func(r *request) { r.Label = &text } }

// Supersede ends an older request that waits with the same key.
func Supersede(key string) Option { return func(r *request) { r.Supersede = &key } }

// RequireLimit refuses the request with ErrInvalid if another limit than that of the Semaphore is in
// force, such as one that an operator has set.
func RequireLimit() Option { return func(r *request) { r.RequireLimit = true } }
