package permits

import (
	"context"
	"fmt"
)

// A Permit is held until it is released or lost. Its methods may be called by any number of goroutines.
type Permit struct {
	call  *call
	grant *event
	ctx   context.Context
}

// Semaphore returns the name of the semaphore.
func (p *Permit) Semaphore() string { return p.grant.Semaphore }

// Holder returns the name under which operators see the permit.
func (p *Permit) Holder() string { return p.grant.Holder }

// Weight returns the number of units.
func (p *Permit) Weight() int { return p.grant.Weight }

// Slot returns a number from 0 to limit - 1 that no other live permit of the semaphore has.
func (p *Permit) Slot() int { return p.grant.Slot }

// Token returns the fencing token: greater than the token of every earlier grant. Give it to the resource,
// which must refuse any token smaller than the greatest that it has seen.
func (p *Permit) Token() int64 { return p.grant.Token }

// Also returns what was granted of the other semaphores, if there are some: see [Semaphore.Also].
func (p *Permit) Also() []Grant { return p.grant.Also }

// Context returns a context that ends when the permit is lost, with a [*LostError] as its cause, or when it
// is released, with [ErrReleased]. It has the values of the context with which the permit was acquired, but
// not its deadline or its end.
func (p *Permit) Context() context.Context { return p.ctx }

// Count corrects the units that the grant counts for, when the work has shown what it really cost. The store
// learns of the last correction with the release. The error is [ErrInvalid] if the permit was acquired
// without [AtLeast].
func (p *Permit) Count(units int) error {
	if !p.call.counts || units < 0 {
		reason := "a count is a number of units, of a permit that was acquired with AtLeast"
		return &Error{Semaphore: p.Semaphore(), Reason: reason, kind: ErrInvalid}
	}
	conn := p.call.conn
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.put(fmt.Appendf(nil, "{\"id\":%d,\"count\":%d}\n", p.call.id, units))
	return nil
}

// Release releases the permit, and waits until the store has confirmed that. The next in line is granted in
// the same moment. Every further call returns what the first one has found.
//
// If ctx ends first, Release returns its error, and the permit is released nevertheless: so an ended context
// does no harm in a deferred call.
//
// The error is a [*LostError] if the permit was lost before, so that another holder may have worked at
// the same time, and it is [ErrUnavailable] if the store did not confirm the release.
func (p *Permit) Release(ctx context.Context) error {
	p.release()
	select {
	case <-p.call.done:
		return p.call.err
	case <-ctx.Done():
		return ended(ctx, fmt.Sprintf("releasing %q, which goes on", p.Semaphore()))
	}
}

// release asks for the release, once, and ends the context.
func (p *Permit) release() {
	p.call.conn.release(p.call)
	p.call.cancel(ErrReleased)
}
