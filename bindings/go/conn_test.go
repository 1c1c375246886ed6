package permits

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// alone makes a conn whose events come from the test, and a call on it.
func alone(t *testing.T) (*conn, *call) {
	t.Helper()
	conn := newConn(new(bytes.Buffer), strings.NewReader(""), func() error { return nil }, func() string { return "" })
	call := &call{id: 7, semaphore: "exports", conn: conn, reply: make(chan *event, 1), done: make(chan struct{})}
	if err := conn.begin(context.Background(), call, []byte("begin\n")); err != nil {
		t.Fatal(err)
	}
	return conn, call
}

func (c *call) told(name string) { c.conn.take(&event{ID: &c.id, Event: name, Reason: "enough"}) }

// The loss comes before the program has the permit.
func TestALossThatFollowsTheGrantAtOnceEndsTheContext(t *testing.T) {
	_, call := alone(t)
	call.told("granted")
	call.told("lost")
	permit := call.permit(context.Background(), <-call.reply)
	var lost *LostError
	if cause := context.Cause(permit.Context()); !errors.As(cause, &lost) || lost.Reason != "enough" {
		t.Error(cause)
	}
}

// A program may count each token, while the command is behind.
func TestTheLastCountIsWrittenBeforeTheRelease(t *testing.T) {
	conn, call := alone(t)
	call.told("granted")
	for units := range 1000 {
		if err := conn.count(call, units); err != nil {
			t.Error(err)
		}
	}
	conn.end(call, "release")
	if err := conn.count(call, 7); err != ErrReleased {
		t.Error(err)
	}
	conn.hangUp()
	conn.write()
	if lines := conn.in.(*bytes.Buffer).String(); lines != "{\"id\":7,\"count\":999}\nbegin\n{\"id\":7,\"release\":true}\n" {
		t.Errorf("%q", lines)
	}
}

func TestAReleaseIsWrittenOnceAndNoneAfterTheEnd(t *testing.T) {
	conn, call := alone(t)
	call.told("granted")
	permit := call.permit(context.Background(), <-call.reply)
	permit.leave("release")
	permit.leave("release")
	call.told("released")
	permit.leave("release")
	if lines := string(conn.queue); lines != "begin\n{\"id\":7,\"release\":true}\n" {
		t.Errorf("%q", lines)
	}
	if err := permit.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// The command may send this event about a permit that is held, or about a line that came too late.
func TestAnInvalidLineEndsOnlyARequest(t *testing.T) {
	_, call := alone(t)
	call.told("granted")
	call.told("invalid")
	if call.result() != nil {
		t.Error(call.err)
	}
	_, call = alone(t)
	call.told("invalid")
	if err := call.result(); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// The outcome of the release is not known, which is not a loss.
func TestACommandThatDiesDuringAReleaseLeavesItUnconfirmed(t *testing.T) {
	conn, call := alone(t)
	call.told("granted")
	permit := call.permit(context.Background(), <-call.reply)
	permit.leave("release")
	conn.die()
	var lost *LostError
	if err := permit.Release(context.Background()); !errors.Is(err, ErrUnavailable) || errors.As(err, &lost) {
		t.Error(err)
	}
}
