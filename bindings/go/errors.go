package permits

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotNow says that there was no permit in time: all are held, the line is closed or full, or the
	// semaphore is paused; or that an operator has revoked the request. A later attempt may succeed.
	ErrNotNow = errors.New("permits: not now")
	// ErrInvalid says that the request can never succeed, for example because its weight is above the limit.
	ErrInvalid = errors.New("permits: invalid request")
	// ErrUnavailable says that the store cannot be reached or refuses, or that the command cannot be started or
	// has died. If a release returns it, the permit may stay held until its lease ends.
	ErrUnavailable = errors.New("permits: unavailable")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("permits: the client is closed")
	// ErrReleased is the cause with which the context of a permit ends when the program releases it.
	ErrReleased = errors.New("permits: the permit is released")
)

// Exit codes of the command, which its events carry. Any other code says that the store has failed.
const codeLost = 76

var kinds = map[int]error{64: ErrInvalid, 75: ErrNotNow}

// An Error says why there is no permit, or why its release is not confirmed. It is one of ErrNotNow,
// ErrInvalid and ErrUnavailable: use [errors.Is].
type Error struct {
	// Semaphore is the name of the semaphore. It is empty if the client has failed. If several were requested,
	// it is the first one, and Reason names the one that is meant.
	Semaphore string
	// Reason says why, for people.
	Reason string
	// RetryAfter is the time after which the same request succeeds if no other one comes first. It is 0 if that
	// is not known.
	RetryAfter time.Duration
	// StandsStill is true if a pause, a closed line or a recovery keeps every request out, even if units are
	// free.
	StandsStill bool

	kind error
}

func (e *Error) Error() string {
	if e.Semaphore == "" {
		return "permits: " + e.Reason
	}
	return fmt.Sprintf("permits: %q: %s", e.Semaphore, e.Reason)
}

// Unwrap returns ErrNotNow, ErrInvalid or ErrUnavailable.
func (e *Error) Unwrap() error { return e.kind }

// A LostError says that a permit was lost: another holder may have been granted its units. It is the cause
// with which the context of the permit ends.
type LostError struct {
	// Semaphore is the name of the semaphore. It is empty if a handle could not be adopted.
	Semaphore string
	// Reason says why, for people.
	Reason string
}

func (e *LostError) Error() string {
	if e.Semaphore == "" {
		return "permits: the permit is lost: " + e.Reason
	}
	return fmt.Sprintf("permits: %q is lost: %s", e.Semaphore, e.Reason)
}

func unavailable(reason string) error { return &Error{Reason: reason, kind: ErrUnavailable} }

func invalid(semaphore, reason string) error {
	return &Error{Semaphore: semaphore, Reason: reason, kind: ErrInvalid}
}

// failure makes the error from the last event of a request.
func failure(semaphore string, e *event) error {
	if e.Event == "lost" || e.ExitCode == codeLost {
		return &LostError{Semaphore: cmp.Or(e.Semaphore, semaphore), Reason: e.Reason}
	}
	kind := cmp.Or(kinds[e.ExitCode], ErrUnavailable)
	if e.Event == "invalid" {
		kind = ErrInvalid
	}
	after := time.Duration(e.RetryAfterMS) * time.Millisecond
	return &Error{Semaphore: semaphore, Reason: e.Reason, RetryAfter: after, StandsStill: e.StandsStill, kind: kind}
}
