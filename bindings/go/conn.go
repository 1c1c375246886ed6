package permits

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// maxCalls is how many calls to the store the command takes at once: further ones wait for a place.
const maxCalls = 64

// died says why a command has ended before it has granted a request.
type died string

func (d died) Error() string { return "the command has ended: " + string(d) }

// maxQueued bounds the requests whose lines wait to be written: further ones wait for room. A release never
// waits, so there may be one more line for each request.
const maxQueued = 256

// maxEvent is the length of the longest event that is read, in bytes. Only the list of all names may be long.
const maxEvent = 1 << 30

// A Grant is what the store has granted of one semaphore.
type Grant struct {
	Semaphore string `json:"name"`
	Holder    string `json:"holder"` // The name under which operators see the permit.
	Weight    int    `json:"weight"` // The number of units.
	Slot      int    `json:"slot"`   // See [Permit.Slot].
	Token     int64  `json:"token"`  // See [Permit.Token].
}

// An event is a line of the command. Unknown events and fields are ignored, so that a later command may have
// more of them.
type event struct {
	ID    int64  `json:"id"`
	Event string `json:"event"`
	Grant
	Also         []Grant         `json:"also"`
	Answers      string          `json:"answers"`
	Reason       string          `json:"reason"`
	ExitCode     int             `json:"exit_code"`
	RetryAfterMS int64           `json:"retry_after_ms"`
	StandsStill  bool            `json:"stands_still"`
	Lines        int             `json:"lines"`
	Line         int64           `json:"line"`
	Permits      string          `json:"permits"`
	Handle       string          `json:"handle"`
	Names        []string        `json:"names"`
	Inspection   json.RawMessage `json:"inspection"`
	Changed
}

// A call is a request from its line to its last event.
type call struct {
	id        int64
	semaphore string
	isPermit  bool // It asks for a permit, and not for an answer of the store.
	counts    bool // The grant counts for some time.
	conn      *conn
	ctx       context.Context // The context of the permit.
	cancel    context.CancelCauseFunc
	reply     chan event    // Has the grant, or the only event. Closed after the last event.
	done      chan struct{} // Closed after the last event.
	turn      chan struct{} // Has a value while an operation is not answered, even if its caller has left.
	// The result of the request, and its handle if it was handed over. They are set before done is closed.
	// The error is nil if the program has ended the permit.
	err    error
	handle string

	// The mutex of conn guards the fields below.
	grant     *event
	isEnded   bool // The program has asked for the end.
	operation *operation
}

// An operation is a line about a permit that stays held.
type operation struct {
	kind   string
	value  any
	line   int64 // The number of the line.
	answer chan error
}

// answer begins the call, and waits for its first event. The error is of the type died if the command dies
// before.
func (c *call) answer(ctx context.Context, line []byte) (event, error) {
	if err := c.conn.begin(ctx, c, line); err != nil {
		return event{}, err
	}
	select {
	case answer, isThere := <-c.reply: // A grant is there even if its loss has come already.
		if !isThere {
			return event{}, c.err
		}
		return answer, nil
	case <-ctx.Done():
		c.end("release")
		return event{}, c.left(ctx)
	}
}

// left is the error of a caller whose context has ended.
func (c *call) left(ctx context.Context) error {
	return ended(ctx, "waiting for "+cmp.Or(c.semaphore, "the store"))
}

// outcome returns the result that the last event tells. The caller has locked the mutex of conn.
func (c *call) outcome(last *event) error {
	name := c.semaphore
	if c.grant != nil {
		name = c.grant.Semaphore
	}
	switch {
	case c.isEnded && (last.Event == "released" || last.Event == "handed_over"):
		return nil
	case c.grant == nil && (last.Event == "released" || last.Event == "died"):
		if c.conn.err == ErrClosed {
			return ErrClosed
		}
		return died(last.Reason)
	case c.grant == nil || c.isEnded || last.Event == "lost":
		return failure(name, last)
	case c.conn.err == ErrClosed:
		return &LostError{Semaphore: name, Reason: "the client is closed"}
	default:
		return &LostError{Semaphore: name, Reason: died(last.Reason).Error()}
	}
}

// A conn speaks with one command: one goroutine writes what is queued, and another one reads. Neither waits
// for a caller, so no caller delays another.
type conn struct {
	in      io.Writer
	out     *bufio.Scanner
	closeIn func() error  // Tells the command that no more lines come.
	stop    func() string // Ends the command at once, and returns why it has ended. It may be called again.
	written chan struct{} // Closed when the goroutine that writes has ended.
	closed  chan struct{} // Closed when no more requests can begin.
	dead    chan struct{} // Closed when the command has ended: nothing is held any more.
	room    chan struct{} // Has a value for each request for a permit that is not written yet.
	places  chan struct{} // Has a value for each call to the store that is not answered yet.

	mu     sync.Mutex
	wake   sync.Cond // Wakes the goroutine that writes.
	calls  map[int64]*call
	queue  []byte
	begun  int           // How many requests for a permit are in the queue.
	lines  int64         // How many lines were queued, from the beginning.
	counts map[int64]int // The last corrections of units, by call, that are not queued yet.
	err    error         // Why no request can begin: ErrClosed, or that the command has died.
}

func newConn(in io.Writer, out io.Reader, closeIn func() error, stop func() string) *conn {
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, maxEvent)
	conn := &conn{
		in: in, out: scanner, closeIn: closeIn, stop: stop, calls: map[int64]*call{}, counts: map[int64]int{},
		written: make(chan struct{}), closed: make(chan struct{}), dead: make(chan struct{}), room: make(chan struct{}, maxQueued), places: make(chan struct{}, maxCalls),
	}
	conn.wake.L = &conn.mu
	return conn
}

// hello reads the first event, with which the command says that it is ready.
func (c *conn) hello() error {
	var hello event
	if !c.out.Scan() {
		return unavailable("the command has ended: " + c.stop())
	}
	switch err := json.Unmarshal(c.out.Bytes(), &hello); {
	case err != nil:
		return unavailable(fmt.Sprintf("the command is not permits, or too old: it has written %.100q", c.out.Bytes()))
	case hello.Event == "hello" && hello.Lines == 1:
		return nil
	case hello.Event == "hello":
		return unavailable(fmt.Sprintf("permits %s speaks version %d of the lines: update this package", hello.Permits, hello.Lines))
	default:
		return failure("", &hello)
	}
}

// run reads events until the command ends or writes no event, with a goroutine that writes.
func (c *conn) run() {
	go c.write()
	reason := "it has closed its output"
	for c.out.Scan() {
		event, err := parse(c.out.Bytes())
		if err != nil {
			// Whose event it is cannot be known, and its caller would wait forever.
			reason = fmt.Sprintf("it has written %.100q", c.out.Bytes())
			break
		}
		c.take(event)
	}
	// Tell the callers before waiting for the process, because other holders may work soon.
	c.die(reason)
	c.closeIn()
	c.stop()
	<-c.written
}

// parse returns the event of a line.
func parse(line []byte) (*event, error) {
	e := new(event)
	err := json.Unmarshal(line, e)
	var mistyped *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &mistyped) || e.Event == "granted":
		return e, err
	case slices.Contains([]string{"inspected", "listed", "changed"}, e.Event):
		// It has another form, or a number that is too large for this processor.
		return &event{ID: e.ID, Event: "failed", Reason: "the answer cannot be read: " + err.Error()}, nil
	default:
		// A later command may use the name of a field for something else.
		return new(event), nil
	}
}

// take does what an event says. An event that does not fit the call is ignored.
func (c *conn) take(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[e.ID]
	if call == nil {
		return
	}
	switch e.Event {
	case "granted":
		if call.isPermit && call.grant == nil {
			call.grant = e
			call.reply <- *e
		}
	case "inspected", "listed", "changed":
		if !call.isPermit {
			call.reply <- *e
			c.finish(call, e)
		}
	case "held", "unsure":
		if call.operation != nil && call.operation.kind == e.Answers {
			call.answered(e)
		}
	case "invalid":
		// About a permit it may also answer a count, or a line that has crossed another event.
		if call.grant == nil {
			c.finish(call, e)
		} else if call.operation != nil && call.operation.line == e.Line {
			call.answered(e)
		}
	case "released", "lost", "failed", "handed_over":
		if call.grant != nil || e.Event != "handed_over" {
			c.finish(call, e)
		}
	}
}

// answered ends the operation on a permit, so the next one may begin. The caller has locked the mutex.
func (c *call) answered(e *event) {
	var err error
	if e.Event != "held" {
		e.Reason = cmp.Or(e.Reason, "the store does not confirm that the permit is held")
		err = failure(c.grant.Semaphore, e)
	}
	if units, isPart := c.operation.value.(int); isPart && e.Event != "invalid" {
		c.grant.Weight -= units
	}
	c.operation.answer <- err
	c.operation = nil
	<-c.turn
}

// operate queues a line about a permit, and returns where its answer comes. A line that comes after the end
// of the permit gets no answer. The caller has the turn of the call.
func (c *conn) operate(call *call, kind string, value any) <-chan error {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := make(chan error, 1)
	if !call.isEnded && c.calls[call.id] == call {
		c.put(about(call.id, kind, value))
		call.operation = &operation{kind: kind, value: value, line: c.lines, answer: answer}
	}
	return answer
}

// finish ends a call with its last event. The caller has locked the mutex.
func (c *conn) finish(call *call, last *event) {
	delete(c.calls, call.id)
	if !call.isPermit {
		<-c.places
	}
	call.err, call.handle = call.outcome(last), last.Handle
	close(call.reply)
	close(call.done)
	call.cancel(cmp.Or(call.err, ErrReleased))
}

// die ends every call: granted permits are lost.
func (c *conn) die(reason string) {
	c.hangUp(died(reason))
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.dead)
	for _, call := range c.calls {
		c.finish(call, &event{Event: "died", Reason: reason})
	}
}

// hangUp lets no more requests begin. The command reads what is queued, releases everything, and ends.
func (c *conn) hangUp(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.closed)
	}
	if _, hasDied := err.(died); hasDied {
		// A command that is about to be ended must grant nothing more.
		c.queue = nil
		clear(c.counts)
	}
	c.wake.Signal()
}

// begin queues the line of a call. A request for a permit first waits for room, and a call to the store for a
// place, which it keeps until the answer, even if its caller leaves before.
func (c *conn) begin(ctx context.Context, call *call, line []byte) error {
	place := c.room
	if !call.isPermit {
		place = c.places
	}
	if ctx.Err() != nil {
		return call.left(ctx)
	}
	select {
	case place <- struct{}{}:
	case <-c.closed:
	case <-ctx.Done():
		return call.left(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.calls[call.id] = call
		c.put(line)
		if call.isPermit {
			c.begun++
		}
	}
	return c.err
}

// end asks for the end of a permit or of its request, once, and ends the context: "release" or "hand_over".
func (c *call) end(how string) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.isPermit && !c.isEnded && c.conn.calls[c.id] == c {
		c.isEnded = true
		c.cancel(ErrReleased)
		if units, isCounted := c.conn.counts[c.id]; isCounted {
			delete(c.conn.counts, c.id)
			c.conn.put(about(c.id, "count", units))
		}
		c.conn.put(about(c.id, how, true))
	}
}

// about is a line about a request.
func about(id int64, kind string, value any) []byte {
	return fmt.Appendf(nil, "{\"id\":%d,%q:%v}\n", id, kind, value)
}

// put queues a line. The caller has locked the mutex.
func (c *conn) put(line []byte) {
	c.queue = append(c.queue, line...)
	c.lines++
	c.wake.Signal()
}

// write writes what is queued, until that fails or the conn has ended.
func (c *conn) write() {
	defer close(c.written)
	defer c.closeIn()
	var lines []byte
	for isLast := false; !isLast; {
		c.mu.Lock()
		for len(c.queue) == 0 && len(c.counts) == 0 && c.err == nil {
			c.wake.Wait()
		}
		for id, units := range c.counts {
			c.put(about(id, "count", units))
		}
		clear(c.counts)
		for ; c.begun > 0; c.begun-- {
			<-c.room
		}
		lines, c.queue = c.queue, lines[:0]
		isLast = c.err != nil
		c.mu.Unlock()
		if _, err := c.in.Write(lines); err != nil {
			return // The reader will see the end of the command.
		}
	}
}
