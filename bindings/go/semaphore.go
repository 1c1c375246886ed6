package permits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// StoredLimit is the limit of a [Semaphore] whose limit is set somewhere else: by another program, or by
// "permits limit NAME N".
const StoredLimit = 0

// maxLine is how long a line may be. The command does not read longer ones.
const maxLine = 8 * 1024

// A Semaphore is a name with a limit. You need not close it.
type Semaphore struct {
	client *Client
	name   string
	limit  int
}

// Semaphore returns the semaphore of this name, of which at most limit units are held at once. All programs
// should declare the same limit: the latest counts, unless an operator has set one. Nothing is sent before
// the first acquisition.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{client: c, name: name, limit: limit}
}

// Acquire waits in line until the permit is granted. Release the permit.
//
// The error is an [*Error]. Or it is the error of ctx, if ctx ends first: then the request has left the line,
// or the permit is released.
func (s *Semaphore) Acquire(ctx context.Context, options ...Option) (*Permit, error) {
	request, line, err := s.request(options)
	if err != nil {
		return nil, err
	}
	for isRetry := false; ; isRetry = true {
		conn, err := s.client.connection(ctx)
		if err != nil {
			return nil, err
		}
		permit, err := s.acquire(ctx, conn, request, line)
		// The command may have been dying when the call began, so try its successor once.
		if err != errDied || isRetry {
			return permit, err
		}
	}
}

// acquire acquires by this command. The error is errDied if the command dies before the grant.
func (s *Semaphore) acquire(ctx context.Context, conn *conn, request *request, line []byte) (*Permit, error) {
	call := &call{id: request.ID, semaphore: s.name, conn: conn, reply: make(chan *event, 1), done: make(chan struct{})}
	call.counts = request.AtLeast != nil && *request.AtLeast > 0
	if err := conn.begin(ctx, call, line); err != nil {
		return nil, err
	}
	select {
	case grant := <-call.reply:
		return call.permit(ctx, grant), nil
	case <-call.done:
		return nil, call.err
	case <-ctx.Done():
		conn.release(call)
		return nil, ended(ctx, fmt.Sprintf("waiting for %q", s.name))
	}
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
	defer permit.release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(permit.ctx, func() { cancel(context.Cause(permit.ctx)) })
	defer stop()
	err = work(ctx)
	if lost := permit.call.result(); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}

// request returns a request, and its line.
func (s *Semaphore) request(options []Option) (*request, []byte, error) {
	request := &request{ID: s.client.ids.Add(1), Acquire: s.name, Limit: s.limit}
	for _, option := range options {
		option(request)
	}
	if err := request.check(); err != nil {
		return nil, nil, err
	}
	line, err := json.Marshal(request)
	if err != nil || len(line) >= maxLine {
		return nil, nil, &Error{Semaphore: s.name, Reason: "the request is too long", kind: ErrInvalid}
	}
	return request, append(line, '\n'), nil
}

// ended returns the error of a context that has ended, with its cause if that says more.
func ended(ctx context.Context, during string) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("permits: %s: %w: %w", during, ctx.Err(), cause)
	}
	return fmt.Errorf("permits: %s: %w", during, ctx.Err())
}
