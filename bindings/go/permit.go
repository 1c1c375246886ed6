package permits

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"
)

// A Permit is held until it is released or lost. Its methods may be called by any number of goroutines.
type Permit struct {
	call  *call
	grant *event
}

// Semaphore returns the name of the semaphore.
func (p *Permit) Semaphore() string { return p.grant.Semaphore }

// Holder returns the name under which operators see the permit.
func (p *Permit) Holder() string { return p.grant.Holder }

// Weight returns the number of units.
func (p *Permit) Weight() int {
	p.call.conn.mu.Lock()
	defer p.call.conn.mu.Unlock()
	return p.grant.Weight
}

// Slot returns a number from 0 to limit - 1 that no other live permit of the semaphore has.
func (p *Permit) Slot() int { return p.grant.Slot }

// Token returns the fencing token: greater than the token of every earlier grant of the slot. Give it to the
// resource with [Permit.Slot]: the resource keeps the greatest token of each slot, and refuses a smaller one.
func (p *Permit) Token() int64 { return p.grant.Token }

// Also returns what was granted of the other semaphores, if there are some: see [Semaphore.Also].
func (p *Permit) Also() []Grant { return p.grant.Also }

// Context returns a context that ends when the permit is lost, with a [*LostError] as its cause, or when it
// is released, with [ErrReleased]. It has the values of the context with which the permit was acquired, but
// not its deadline or its end.
func (p *Permit) Context() context.Context { return p.call.ctx }

// Count corrects the units that the grant counts for, when the work has shown what it really cost. The store
// learns of the last correction with the release. Of several semaphores it is about the first. The error is
// [ErrInvalid] if the permit was acquired without [AtLeast], and [ErrReleased] or a [*LostError] if it has
// ended. The package does not know how an adopted permit was acquired: Count then has no effect at worst.
func (p *Permit) Count(units int) error {
	if !p.call.counts || uint64(units) > math.MaxUint32 {
		return invalid(p.Semaphore(), "a count is a number of units, of a permit that was acquired with AtLeast")
	}
	conn := p.call.conn
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if p.call.isEnded {
		return ErrReleased
	}
	if p.call.err == nil {
		conn.counts[p.call.id] = units
		conn.wake.Signal()
	}
	return p.call.err
}

// Renew renews the permit now, and so confirms that it is held. The error is [ErrUnavailable] if the store
// does not confirm it: the permit may still be held, and its context ends if it is lost.
func (p *Permit) Renew(ctx context.Context) error { return p.operate(ctx, "renew", true) }

// SetLease gives the permit another lease, and renews it as Renew does. Of several semaphores, only the first
// is changed.
func (p *Permit) SetLease(ctx context.Context, lease time.Duration) error {
	return p.operate(ctx, "set_lease_ms", milliseconds(lease))
}

// ReleasePart releases some of the units, and keeps at least one. The next in line is granted in the same
// moment. If the store does not confirm it, the error is [ErrUnavailable], and the next renewal tells the
// store. It is [ErrInvalid] if nothing would be left. Of several semaphores, only the first is changed.
func (p *Permit) ReleasePart(ctx context.Context, units int) error {
	return p.operate(ctx, "release_part", units)
}

// operate does something to the permit that stays held, when what was asked for before is answered. If ctx
// ends first, it may be done nevertheless.
func (p *Permit) operate(ctx context.Context, kind string, value any) error {
	turn, answer := p.call.turn, (<-chan error)(nil)
	if ctx.Err() != nil {
		return ended(ctx, fmt.Sprintf("renewing %q", p.Semaphore()))
	}
	for {
		select {
		case turn <- struct{}{}:
			turn, answer = nil, p.call.conn.operate(p.call, kind, value)
		case err := <-answer:
			return err
		case <-p.call.done:
			return cmp.Or(p.call.err, ErrReleased)
		case <-ctx.Done():
			return ended(ctx, fmt.Sprintf("renewing %q, which may go on", p.Semaphore()))
		}
	}
}

// HandOver ends the permit here, and returns a handle for [Client.Adopt], by which another process has the
// permit from then on. It must adopt the permit within a lease. The handle is a secret: who has it has the
// permit. If ctx ends first, the handle is lost, and the permit ends with its lease. After any other error
// the permit has been released, or is lost: stop the work. Only [ErrInvalid], for several semaphores, leaves
// it as it is.
func (p *Permit) HandOver(ctx context.Context) (string, error) {
	if len(p.grant.Also) > 0 {
		return "", invalid(p.Semaphore(), "permits of several semaphores cannot be handed over")
	}
	if err := p.end(ctx, "hand_over"); err != nil {
		return "", err
	}
	if p.call.handle == "" {
		return "", ErrReleased
	}
	return p.call.handle, nil
}

// Adopt continues the permit of a handle: of [Permit.HandOver] in any language, or of "permits acquire". A
// handle is good once: the error is a [*LostError] if the permit has ended, or somebody has adopted it.
func (c *Client) Adopt(ctx context.Context, handle string) (*Permit, error) {
	return c.permit(ctx, "", fields{"adopt": handle})
}

// Release releases the permit, and waits until the store has confirmed that. The next in line is granted in
// the same moment. Every further call returns what the first one has found.
//
// If ctx ends first, Release returns its error, and the permit is released nevertheless: so an ended context
// does no harm in a deferred call.
//
// The error is a [*LostError] if the permit was lost before, so that another holder may have worked at
// the same time, and it is [ErrUnavailable] if the store did not confirm the release.
func (p *Permit) Release(ctx context.Context) error { return p.end(ctx, "release") }

// end asks for the end, and waits for it.
func (p *Permit) end(ctx context.Context, how string) error {
	p.call.end(how)
	select {
	case <-p.call.done:
		return p.call.err
	case <-ctx.Done():
		return ended(ctx, fmt.Sprintf("releasing %q, which goes on", p.Semaphore()))
	}
}
