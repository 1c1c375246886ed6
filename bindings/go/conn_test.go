package permits

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// alone makes a conn whose events come from the test, and a call on it for a permit.
func alone(t *testing.T) (*conn, *call) {
	t.Helper()
	conn := newConn(new(bytes.Buffer), strings.NewReader(""), func() error { return nil }, func() string { return "" })
	return conn, began(t, conn, 7, true)
}

func began(t *testing.T, conn *conn, id int64, isPermit bool) *call {
	t.Helper()
	call := &call{
		id: id, semaphore: "exports", isPermit: isPermit, counts: true, conn: conn,
		reply: make(chan event, 1), done: make(chan struct{}), turn: make(chan struct{}, 1),
	}
	call.ctx, call.cancel = context.WithCancelCause(context.Background())
	if err := conn.begin(context.Background(), call, []byte("begin\n")); err != nil {
		t.Fatal(err)
	}
	return call
}

func (c *call) told(name string) { c.tells(event{Event: name, Reason: "enough"}) }

func (c *call) tells(e event) {
	e.ID = c.id
	c.conn.take(&e)
}

// granted makes the permit of a call.
func (c *call) granted(weight int) *Permit {
	c.tells(event{Event: "granted", Grant: Grant{Semaphore: "exports", Weight: weight}})
	return &Permit{call: c, grant: c.grant}
}

// The loss comes before the program has the permit, and the program gets it nevertheless.
func TestALossThatFollowsTheGrantAtOnceEndsTheContext(t *testing.T) {
	for range 50 {
		_, call := alone(t)
		call.told("granted")
		call.told("lost")
		if answer, err := call.answer(context.Background(), nil); err != nil || answer.Event != "granted" {
			t.Fatal(answer, err)
		}
		var lost *LostError
		if cause := context.Cause(call.ctx); !errors.As(cause, &lost) || lost.Reason != "enough" {
			t.Error(cause)
		}
	}
}

// A program may count each token, while the command is behind.
func TestTheLastCountIsWrittenBeforeTheRelease(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(1)
	for units := range 1000 {
		if err := permit.Count(units); err != nil {
			t.Error(err)
		}
	}
	call.end("release")
	if err := permit.Count(7); err != ErrReleased {
		t.Error(err)
	}
	conn.hangUp(ErrClosed)
	conn.write()
	if lines := conn.in.(*bytes.Buffer).String(); lines != "begin\n{\"id\":7,\"count\":999}\n{\"id\":7,\"release\":true}\n" {
		t.Errorf("%q", lines)
	}
}

func TestAReleaseIsWrittenOnceAndNoneAfterTheEnd(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(1)
	call.end("release")
	call.end("release")
	call.told("released")
	call.end("release")
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
	if call.err != nil {
		t.Error(call.err)
	}
	_, call = alone(t)
	call.told("invalid")
	if !errors.Is(call.err, ErrInvalid) {
		t.Error(call.err)
	}
}

// The outcome of the release is not known, which is not a loss.
func TestACommandThatDiesDuringAReleaseLeavesItUnconfirmed(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(1)
	call.end("release")
	conn.die("killed")
	var lost *LostError
	if err := permit.Release(context.Background()); !errors.Is(err, ErrUnavailable) || errors.As(err, &lost) {
		t.Error(err)
	}
}

// Such a failure is that of a release for which the command did not wait to be asked.
func TestEveryEndThatTheProgramDidNotAskForIsALoss(t *testing.T) {
	for _, name := range []string{"lost", "failed", "released", "handed_over", "died"} {
		conn, call := alone(t)
		permit := call.granted(1)
		if name == "died" {
			conn.die("enough")
		} else {
			call.told(name)
		}
		var lost *LostError
		if cause := context.Cause(permit.Context()); !errors.As(cause, &lost) || lost.Semaphore != "exports" || !strings.HasSuffix(lost.Reason, "enough") {
			t.Errorf("%s: %v", name, cause)
		}
	}
}

func TestEventsThatDoNotFitAreIgnored(t *testing.T) {
	conn, call := alone(t)
	for _, name := range []string{"held", "unsure", "handed_over", "inspected", "listed", "changed", "unknown"} {
		call.told(name)
	}
	inspection := began(t, conn, 8, false)
	inspection.told("granted")
	if len(conn.calls) != 2 || len(call.reply) != 0 || len(inspection.reply) != 0 {
		t.Fatal(call.err, inspection.err)
	}
	if permit := call.granted(1); permit.Context().Err() != nil {
		t.Error(call.err)
	}
}

// A later command may have fields of the same name.
func TestAFieldOfAnotherTypeEndsTheCallThatItAnswersAlone(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(1)
	inspection := began(t, conn, 8, false)
	for _, line := range []string{`{"event":"stats","permits":{"held":1}}`, `{"id":7,"event":"held","weight":"1"}`, `{"id":8,"event":"changed","limit":1e40}`} {
		event, err := parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		conn.take(event)
	}
	if !errors.Is(inspection.err, ErrUnavailable) || permit.Context().Err() != nil {
		t.Error(inspection.err, context.Cause(permit.Context()))
	}
}

func TestNothingIsSentForAContextThatHasEnded(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(100)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 {
		if err := permit.ReleasePart(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if lines := string(conn.queue); lines != "begin\n" {
		t.Errorf("%q", lines)
	}
}

func TestAnAnswerAfterTheCloseIsTold(t *testing.T) {
	conn, _ := alone(t)
	change, other := began(t, conn, 8, false), began(t, conn, 9, false)
	conn.hangUp(ErrClosed)
	change.tells(event{Event: "failed", ExitCode: 75})
	conn.die("it has closed its output")
	if !errors.Is(change.err, ErrNotNow) || other.err != ErrClosed {
		t.Error(change.err, other.err)
	}
}

// Nobody can know whose event it was, so no caller waits on.
func TestALineThatIsNoEventEndsTheCommand(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(1)
	other := began(t, conn, 8, true)
	conn.out = bufio.NewScanner(strings.NewReader("{\"id\":7,\"event\":\"held\"}\n{\"id\":8,\"event\n{\"id\":8,\"event\":\"granted\"}\n"))
	conn.run()
	if other.grant != nil {
		t.Error("the events go on")
	}
	for _, err := range []error{other.err, context.Cause(permit.Context())} {
		if err == nil || !strings.Contains(err.Error(), "it has written \"{\\\"id\\\":8,") {
			t.Error(err)
		}
	}
}

// operates begins an operation, and returns when its line is queued, with the place of its result.
func operates(t *testing.T, permit *Permit, operation func() error) <-chan error {
	t.Helper()
	call := permit.call
	conn := call.conn
	result, queued := make(chan error, 1), func() int64 {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.lines
	}
	before := queued()
	go func() { result <- operation() }()
	for end := time.Now().Add(hangs); queued() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no line is queued")
		}
	}
	return result
}

// The command says no to a count, whose line has no other answer.
func TestAnAnswerIsForTheOperationThatAskedForIt(t *testing.T) {
	_, call := alone(t)
	permit, ctx := call.granted(4), context.Background()
	result := operates(t, permit, func() error { return permit.ReleasePart(ctx, 3) })
	call.tells(event{Event: "invalid", Line: 1})
	call.tells(event{Event: "held", Answers: "renew"})
	if len(result) != 0 || permit.Weight() != 4 {
		t.Error("an answer to another line is taken")
	}
	call.tells(event{Event: "unsure", Answers: "release_part"})
	if err := <-result; !errors.Is(err, ErrUnavailable) || permit.Weight() != 1 {
		t.Error(err, permit.Weight())
	}
	result = operates(t, permit, func() error { return permit.ReleasePart(ctx, 1) })
	call.tells(event{Event: "invalid", Line: 3, Reason: "nothing is left"})
	if err := <-result; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "nothing is left") || permit.Weight() != 1 {
		t.Error(err, permit.Weight())
	}
}

func TestAnOperationWhoseCallerHasLeftKeepsItsTurnUntilTheAnswer(t *testing.T) {
	conn, call := alone(t)
	permit := call.granted(1)
	ctx, cancel := context.WithCancel(context.Background())
	result := operates(t, permit, func() error { return permit.Renew(ctx) })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 1000 {
		if err := permit.Renew(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if conn.lines != 2 {
		t.Errorf("%d lines are queued", conn.lines)
	}
	call.tells(event{Event: "held", Answers: "renew"})
	result = operates(t, permit, func() error { return permit.SetLease(context.Background(), time.Minute) })
	call.told("lost")
	var lost *LostError
	if err := <-result; !errors.As(err, &lost) {
		t.Error(err)
	}
	if lines := string(conn.queue); lines != "begin\n{\"id\":7,\"renew\":true}\n{\"id\":7,\"set_lease_ms\":60000}\n" {
		t.Errorf("%q", lines)
	}
}

func TestACallWhoseCallerHasLeftKeepsItsPlaceUntilTheAnswer(t *testing.T) {
	conn, _ := alone(t)
	for id := range int64(maxCalls) {
		began(t, conn, 100+id, false)
	}
	first := conn.calls[100]
	first.end("release")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	another := &call{id: 8, conn: conn}
	if err := conn.begin(ctx, another, nil); !errors.Is(err, context.Canceled) || len(conn.places) != maxCalls {
		t.Error(err, len(conn.places))
	}
	if strings.Contains(string(conn.queue), "release") {
		t.Errorf("%q", conn.queue)
	}
	first.told("inspected")
	if err := conn.begin(context.Background(), another, nil); err != nil {
		t.Error(err)
	}
}
