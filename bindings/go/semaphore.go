package permits

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// StoredLimit is the limit of a [Semaphore] whose limit is set somewhere else: by another program, or by
// "permits limit NAME N".
const StoredLimit = 0

// A Semaphore is a name with a limit. You need not close it.
type Semaphore struct {
	client  *Client
	name    string
	limit   int
	options []Option
	others  []*Semaphore // They are acquired with it.
}

// Semaphore returns the semaphore of this name, of which at most limit units are held at once. All programs
// should declare the same limit: the latest counts, unless an operator has set one. Nothing is sent before
// the first acquisition.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{client: c, name: name, limit: limit}
}

// With returns the semaphore with options for each of its requests, before those that a request has itself.
func (s *Semaphore) With(options ...Option) *Semaphore {
	with := *s
	with.options = slices.Concat(s.options, options)
	return &with
}

// Also returns a semaphore whose requests are for a permit of each of these semaphores too, all or none:
//
//	both := exports.Also(minute.With(permits.AtLeast(time.Minute)))
//	err := both.Do(ctx, work)
//
// The permits are acquired, released and lost together. They are requested one after the other in an order
// that all programs share, so no two programs wait for each other. The options of a request are those of s,
// and the shortest [Timeout] covers the whole wait. The semaphores have to be of the same client.
func (s *Semaphore) Also(others ...*Semaphore) *Semaphore {
	set := *s
	set.others = slices.Clone(s.others)
	for _, other := range others {
		if other.client != s.client {
			panic("permits: Also needs semaphores of one client")
		}
		set.others = append(append(set.others, other), other.others...)
	}
	return &set
}

// Acquire waits in line until the permit is granted. Release the permit.
//
// The error is an [*Error], or [ErrClosed] if the client is closed. It is a [*LostError] if one permit of
// several was lost while the request waited for the others. Or it is the error of ctx, if ctx ends first:
// then the request has left the line, or the permit is released. If the command has died, the request first
// waits until another one has started: [Timeout] and [Semaphore.TryAcquire] do not end that wait, ctx does.
func (s *Semaphore) Acquire(ctx context.Context, options ...Option) (*Permit, error) {
	line := s.fields(options)
	if len(s.others) > 0 {
		var others []fields
		for _, other := range s.others {
			others = append(others, other.fields(nil))
		}
		line["also"] = others
	}
	return s.client.permit(ctx, s.name, line)
}

// TryAcquire acquires a permit if one is free now and nobody waits. If not, the error is [ErrNotNow].
func (s *Semaphore) TryAcquire(ctx context.Context, options ...Option) (*Permit, error) {
	return s.Acquire(ctx, append(options[:len(options):len(options)], Timeout(0))...)
}

// Do acquires a permit, runs work, and releases the permit. The context of work ends with ctx, and with the
// loss of the permit. If the permit is lost while work runs, Do returns the [*LostError] joined with the
// error of work. Otherwise it returns the error of work.
//
// Do does not wait until the store has confirmed the release.
func (s *Semaphore) Do(ctx context.Context, work func(ctx context.Context) error, options ...Option) error {
	permit, err := s.Acquire(ctx, options...)
	if err != nil {
		return err
	}
	defer permit.call.end("release")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(permit.Context(), func() { cancel(context.Cause(permit.Context())) })
	defer stop()
	err = work(ctx)
	if lost := context.Cause(permit.Context()); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}

// fields returns a request for a permit of this semaphore alone.
func (s *Semaphore) fields(options []Option) fields {
	request := fields{"acquire": s.name}
	if s.limit != StoredLimit {
		request["limit"] = s.limit
	}
	for _, option := range slices.Concat(s.options, options) {
		option(request)
	}
	return request
}

// ended returns the error of a context that has ended, with its cause if that says more.
func ended(ctx context.Context, during string) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("permits: %s: %w: %w", during, ctx.Err(), cause)
	}
	return fmt.Errorf("permits: %s: %w", during, ctx.Err())
}
