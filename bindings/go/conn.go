package permits

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// errDied says that a command has ended before it has granted a request.
var errDied = unavailable("the command has ended")

// maxQueued bounds the bytes of lines that wait to be written: beyond it, acquisitions wait, too. A release
// never waits, so there may be one more line for each request.
const maxQueued = 64 * 1024

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
	ID    *int64 `json:"id"`
	Event string `json:"event"`
	Grant
	Also         []Grant         `json:"also"`
	Answers      string          `json:"answers"`
	Reason       string          `json:"reason"`
	ExitCode     int             `json:"exit_code"`
	RetryAfterMS *int64          `json:"retry_after_ms"`
	StandsStill  bool            `json:"stands_still"`
	Lines        int             `json:"lines"`
	Permits      string          `json:"permits"`
	Handle       string          `json:"handle"`
	Names        []string        `json:"names"`
	Inspection   json.RawMessage `json:"inspection"`
	Changed
}

// A call is a request from its line to its last event.
type call struct {
	id      int64
	waiting string // What it does before its first event, for people.
	counts  bool   // The grant counts for some time.
	conn    *conn
	reply   chan *event   // The grant, or the only event.
	done    chan struct{} // Closed after the last event.
	// The result of the request, and its handle if it was handed over. They are set before done is closed. The
	// error is nil if the program has ended the permit.
	err    error
	handle string

	// The mutex of conn guards the fields below.
	semaphore  string
	isGranted  bool
	isEnded    bool // The program has asked for the end.
	cancel     context.CancelCauseFunc
	operations []operation // The first one is written, and not answered yet.
}

// An operation is a line about a permit that stays held.
type operation struct {
	line   []byte
	answer chan *event
}

// answer begins the call, and waits for its first event. The error is errDied if the command dies before.
func (c *call) answer(ctx context.Context, line []byte) (*event, error) {
	if err := c.conn.begin(ctx, c, line); err != nil {
		return nil, err
	}
	select {
	case answer := <-c.reply:
		return answer, nil
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		c.conn.end(c, "release")
		return nil, ended(ctx, c.waiting)
	}
}

// permit makes the permit of a grant. The permit may already be lost.
func (c *call) permit(ctx context.Context, grant *event) *Permit {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.cancel = cancel
	if err := c.result(); err != nil {
		cancel(err)
	}
	return &Permit{call: c, grant: grant, ctx: ctx}
}

// result returns the result that is known now.
func (c *call) result() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// outcome returns the result that the last event tells. The caller has locked the mutex of conn.
func (c *call) outcome(last *event) error {
	switch {
	case last.Event == "handed_over", last.Event == "released" && c.isEnded:
		return nil
	case c.conn.isHungUp && !c.isGranted:
		return ErrClosed
	case c.conn.isHungUp && !c.isEnded:
		return &LostError{Semaphore: c.semaphore, Reason: "the client is closed"}
	case (last.Event == "died" || last.Event == "released") && !c.isGranted:
		return errDied
	case (last.Event == "died" || last.Event == "released") && c.isGranted && !c.isEnded:
		return &LostError{Semaphore: c.semaphore, Reason: "the command has ended: " + last.Reason}
	default:
		return failure(c.semaphore, last)
	}
}

// A conn speaks with one command: one goroutine writes what is queued, and another one reads. Neither waits
// for a caller, so no caller delays another.
type conn struct {
	in      io.Writer
	out     *bufio.Scanner
	closeIn func() error  // Tells the command that no more lines come.
	stop    func() string // Ends the command at once, and returns why it has ended. It may be called again.
	wake    chan struct{} // Has a value when something is queued.
	dead    chan struct{} // Closed when the command has ended: nothing is held any more.
	gone    chan struct{} // Closed when both goroutines have ended.

	mu       sync.Mutex
	calls    map[int64]*call
	queue    []byte
	counts   map[int64]int // The last corrections of units, by call, that are not written yet.
	room     chan struct{} // Closed when the queue is written. Nil while nobody waits for it.
	err      error         // Why no request can begin.
	isHungUp bool          // The client is closed.
}

func newConn(in io.Writer, out io.Reader, closeIn func() error, stop func() string) *conn {
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, maxEvent)
	return &conn{
		in: in, out: scanner, closeIn: closeIn, stop: stop, calls: map[int64]*call{}, counts: map[int64]int{},
		wake: make(chan struct{}, 1), dead: make(chan struct{}), gone: make(chan struct{}),
	}
}

// hello reads the first event, with which the command says that it is ready.
func (c *conn) hello() error {
	var hello event
	if !c.out.Scan() {
		return unavailable("the command has ended: " + c.stop())
	}
	if err := json.Unmarshal(c.out.Bytes(), &hello); err != nil {
		return unavailable(fmt.Sprintf("the command is not permits, or too old: it has written %.100q", c.out.Bytes()))
	}
	switch {
	case hello.Event == "hello" && hello.Lines == 1:
		return nil
	case hello.Event == "hello":
		return unavailable(fmt.Sprintf("permits %s speaks version %d of the lines: update this package", hello.Permits, hello.Lines))
	default:
		return failure("", &hello)
	}
}

// run reads events until the command ends, with a goroutine that writes.
func (c *conn) run() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	for c.out.Scan() {
		event := new(event)
		if json.Unmarshal(c.out.Bytes(), event) == nil && event.ID != nil {
			c.take(event)
		}
	}
	// Tell the callers before waiting for the process, because other holders may work soon.
	c.die()
	c.closeIn()
	c.stop()
	<-written
	close(c.gone)
}

// take does what an event says.
func (c *conn) take(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[*e.ID]
	if call == nil {
		return
	}
	switch e.Event {
	case "granted":
		if !call.isGranted {
			call.isGranted, call.semaphore = true, e.Semaphore
			call.reply <- e
		}
	case "inspected", "listed", "changed":
		delete(c.calls, call.id)
		call.reply <- e
	case "held", "unsure":
		if e.Answers != "" {
			c.answered(call, e)
		}
	case "invalid":
		if call.isGranted {
			c.answered(call, e)
		} else {
			c.finish(call, e)
		}
	case "released", "lost", "failed", "handed_over":
		c.finish(call, e)
	}
}

// answered ends the first operation of a permit, and begins the next one. The caller has locked the mutex.
func (c *conn) answered(call *call, e *event) {
	if len(call.operations) == 0 {
		return // The line that is invalid has crossed an event.
	}
	call.operations[0].answer <- e
	call.operations = call.operations[1:]
	if len(call.operations) > 0 {
		c.put(call.operations[0].line)
	}
}

// operate queues a line about a permit, and returns where its answer comes. A line that comes after the end
// of the permit gets no answer.
func (c *conn) operate(call *call, line []byte) <-chan *event {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := make(chan *event, 1)
	call.operations = append(call.operations, operation{line, answer})
	if len(call.operations) == 1 && !call.isEnded {
		c.put(line)
	}
	return answer
}

// finish ends a call with its last event. The caller has locked the mutex.
func (c *conn) finish(call *call, last *event) {
	delete(c.calls, call.id)
	call.err, call.handle = call.outcome(last), last.Handle
	close(call.done)
	if call.cancel != nil && call.err != nil {
		call.cancel(call.err)
	}
}

// die ends every call: granted permits are lost.
func (c *conn) die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errDied
	if c.isHungUp {
		c.err = ErrClosed
	}
	close(c.dead)
	for _, call := range c.calls {
		c.finish(call, &event{Event: "died", Reason: "it has closed its output"})
	}
}

// hangUp lets the command read what is queued, release everything, and end.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.put(nil)
		c.isHungUp, c.err = true, ErrClosed
	}
}

// begin queues the line of a call, when there is room.
func (c *conn) begin(ctx context.Context, call *call, line []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) >= maxQueued && c.err == nil && ctx.Err() == nil {
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-c.dead:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	if ctx.Err() != nil {
		return ended(ctx, call.waiting)
	}
	if c.err == nil {
		c.calls[call.id] = call
		c.put(line)
	}
	return c.err
}

// end asks for the end of a call, once: "release" or "hand_over".
func (c *conn) end(call *call, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !call.isEnded && c.calls[call.id] == call {
		call.isEnded = true
		c.put(fmt.Appendf(nil, "{\"id\":%d,%q:true}\n", call.id, how))
	}
}

// count corrects the units that the grant of a call counts for. The error says why it no longer can.
func (c *conn) count(call *call, units int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case call.isEnded:
		return ErrReleased
	case c.calls[call.id] != call:
		return cmp.Or(call.err, ErrReleased)
	}
	c.counts[call.id] = units
	c.put(nil)
	return nil
}

// put queues a line. The caller has locked the mutex.
func (c *conn) put(line []byte) {
	if c.err != nil {
		return
	}
	c.queue = append(c.queue, line...)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes what is queued, until that fails or the conn has ended.
func (c *conn) write() {
	var lines []byte
	for {
		select {
		case <-c.wake:
		case <-c.dead:
			return
		}
		c.mu.Lock()
		// The release of a call may be queued, so its count is written before.
		lines = lines[:0]
		for id, units := range c.counts {
			lines = fmt.Appendf(lines, "{\"id\":%d,\"count\":%d}\n", id, units)
		}
		clear(c.counts)
		lines, c.queue = append(lines, c.queue...), c.queue[:0]
		if c.room != nil {
			close(c.room)
			c.room = nil
		}
		isLast := c.isHungUp
		c.mu.Unlock()
		// If the write fails, the reader will see the end of the command.
		if _, err := c.in.Write(lines); err != nil || isLast {
			c.closeIn()
			return
		}
	}
}
