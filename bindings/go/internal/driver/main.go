// Command driver lets the cases of the repository run against this package: it speaks the lines of
// "permits hold --many", and does what they say by the package's API (docs/inside/porting.md).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	permits "github.com/permits-rs/permits/bindings/go"
)

// A wanted permit is what a line, or one of its "also", asks for.
type wanted struct {
	Acquire      string `json:"acquire"`
	Limit        int    `json:"limit"`
	RequireLimit bool   `json:"require_limit"`
	options
}

// A line makes a request or a call, or says something about an earlier request.
type line struct {
	ID int `json:"id"`
	wanted
	Also        []wanted `json:"also"`
	Adopt       string   `json:"adopt"`
	Release     bool     `json:"release"`
	Count       *int     `json:"count"`
	Renew       bool     `json:"renew"`
	ReleasePart *int     `json:"release_part"`
	SetLease    *float64 `json:"set_lease_ms"`
	HandOver    bool     `json:"hand_over"`
	Inspect     string   `json:"inspect"`
	List        bool     `json:"list"`
	Change      string   `json:"change"`
	Name        string   `json:"name"`
	IfVersion   *int64   `json:"if_version"`
	By          int      `json:"by"`
	Reason      string   `json:"reason"`
	Time        float64  `json:"time_ms"`
	Wait        float64  `json:"wait_ms"`
	Waiting     int      `json:"waiting"`
	Floor       int      `json:"floor"`
	Token       int64    `json:"token"`
	Unreadable  bool     `json:"unreadable"`
}

var has = append([]string{
	"acquire", "also", "adopt", "release", "count", "renew", "release_part", "set_lease_ms", "hand_over", "inspect", "list", "change",
	"limit", "require_limit",
}, names...)

// with appends the option if the line has the field.
func with[T any](options []permits.Option, value *T, option func(T) permits.Option) []permits.Option {
	if value != nil {
		options = append(options, option(*value))
	}
	return options
}

// value returns what a pointer points at, or the zero value.
func value[T any](pointer *T) (value T) {
	if pointer != nil {
		value = *pointer
	}
	return value
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func milliseconds(option func(time.Duration) permits.Option) func(float64) permits.Option {
	return func(ms float64) permits.Option { return option(duration(ms)) }
}

func (l *wanted) semaphore(client *permits.Client) *permits.Semaphore {
	options := l.all()
	if l.RequireLimit {
		options = append(options, permits.RequireLimit())
	}
	return client.Semaphore(l.Acquire, l.Limit).With(options...)
}

// change returns the change of a line, or nil.
func (l *line) change() permits.Change {
	return map[string]permits.Change{
		"set_limit":    permits.SetLimit{Limit: l.Limit, IfVersion: l.IfVersion},
		"adjust_limit": permits.AdjustLimit{By: l.By},
		"unpin":        permits.Unpin{},
		"pause":        permits.Pause{Time: duration(l.Time), Reason: l.Reason},
		"resume":       permits.Resume{},
		"close_line":   permits.CloseLine{Reason: l.Reason},
		"open_line":    permits.OpenLine{},
		"set_alert":    permits.SetAlert{Wait: duration(l.Wait), Waiting: l.Waiting},
		"set_lane":     permits.SetLane{Lane: value(l.Lane), Limit: l.Limit, Floor: l.Floor},
		"unpin_lane":   permits.UnpinLane{Lane: value(l.Lane)},
		"revoke":       permits.Revoke{Holder: value(l.Holder), Token: l.Token, Reason: l.Reason},
		"delete":       permits.Delete{Unreadable: l.Unreadable},
	}[l.Change]
}

// A request waits, or its permit is held.
type request struct {
	leave  context.CancelFunc
	permit *permits.Permit
}

type driver struct {
	client   *permits.Client
	mu       sync.Mutex
	requests map[int]*request
	isEnding bool           // No more lines come, so a permit that ends is released.
	events   sync.WaitGroup // The goroutines that write events.
}

// do runs work that writes events.
func (d *driver) do(work func()) {
	d.events.Add(1)
	go func() {
		defer d.events.Done()
		work()
	}()
}

type event map[string]any

func (d *driver) write(id int, name string, fields event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "lost" && d.isEnding {
		name = "released"
	}
	fields["id"], fields["event"] = id, name
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	switch name {
	case "granted", "invalid", "held", "unsure":
	default:
		delete(d.requests, id)
	}
	fmt.Printf("%s\n", text)
}

func (d *driver) acquire(ctx context.Context, request *request, line *line) {
	permit, err := d.granted(ctx, line)
	var gone *permits.LostError
	if errors.As(err, &gone) {
		d.write(line.ID, "failed", event{"exit_code": 76, "reason": gone.Reason})
		return
	}
	if err != nil {
		d.fail(line.ID, err)
		return
	}
	d.mu.Lock()
	request.permit = permit
	hasLeft := ctx.Err() != nil
	d.mu.Unlock()
	also := []event{}
	for _, grant := range permit.Also() {
		also = append(also, event{"name": grant.Semaphore, "holder": grant.Holder, "weight": grant.Weight, "slot": grant.Slot, "token": grant.Token})
	}
	d.write(line.ID, "granted", event{
		"name": permit.Semaphore(), "holder": permit.Holder(), "weight": permit.Weight(), "slot": permit.Slot(), "token": permit.Token(),
		"also": also,
	})
	if hasLeft {
		// The program ended the request before it saw the grant, so the permit has no user: release it.
		d.do(func() { d.end(line.ID, permit, permit.Release(context.Background()), "released", event{}) })
	}
	<-permit.Context().Done()
	if cause := context.Cause(permit.Context()); !errors.Is(cause, permits.ErrReleased) {
		d.fail(line.ID, cause)
	}
}

func (d *driver) granted(ctx context.Context, line *line) (*permits.Permit, error) {
	if line.Adopt != "" {
		return d.client.Adopt(ctx, line.Adopt)
	}
	semaphore := line.semaphore(d.client)
	for _, other := range line.Also {
		semaphore = semaphore.Also(other.semaphore(d.client))
	}
	return semaphore.Acquire(ctx)
}

// fail writes the event of an error.
func (d *driver) fail(id int, err error) {
	var lost *permits.LostError
	var refused *permits.Error
	switch {
	case errors.As(err, &lost):
		d.write(id, "lost", event{"name": lost.Semaphore, "reason": lost.Reason})
	case errors.Is(err, context.Canceled), errors.Is(err, permits.ErrClosed):
		d.write(id, "released", event{})
	default:
		fields := event{"exit_code": 69, "reason": err.Error()}
		if errors.Is(err, permits.ErrInvalid) {
			fields["exit_code"] = 64
		} else if errors.Is(err, permits.ErrNotNow) {
			fields["exit_code"] = 75
		}
		if errors.As(err, &refused) && refused.RetryAfter > 0 {
			fields["retry_after_ms"] = refused.RetryAfter.Milliseconds()
		}
		d.write(id, "failed", fields)
	}
}

func (d *driver) take(line *line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.requests[line.ID]
	switch {
	case line.Acquire != "" || line.Adopt != "":
		ctx, leave := context.WithCancel(context.Background())
		known = &request{leave: leave}
		d.requests[line.ID] = known
		d.do(func() { d.acquire(ctx, known, line) })
	case line.Inspect != "" || line.List || line.Change != "":
		d.do(func() { d.call(context.Background(), line) })
	case known == nil:
		d.do(func() { d.write(line.ID, "invalid", event{"reason": "the id is free"}) })
	case known.permit == nil && line.Release:
		known.leave()
	case known.permit == nil:
		d.do(func() { d.write(line.ID, "invalid", event{"reason": "nothing is held yet"}) })
	default:
		d.operate(context.Background(), known.permit, line)
	}
}

// call asks the store, and writes its answer.
func (d *driver) call(ctx context.Context, line *line) {
	var err error
	switch change := line.change(); {
	case line.Inspect != "":
		var inspection *permits.Inspection
		if inspection, err = d.client.Semaphore(line.Inspect, permits.StoredLimit).Inspect(ctx); err == nil {
			d.write(line.ID, "inspected", event{"inspection": inspection})
		}
	case line.List:
		var names []string
		if names, err = d.client.List(ctx); err == nil {
			d.write(line.ID, "listed", event{"names": names})
		}
	default:
		var changed permits.Changed
		if changed, err = d.client.Semaphore(line.Name, permits.StoredLimit).Change(ctx, change); err == nil {
			d.write(line.ID, "changed", event{"found": changed.Found, "limit": changed.Limit, "limit_version": changed.LimitVersion})
		}
	}
	if err != nil {
		d.fail(line.ID, err)
	}
}

// operate does what a line says about a permit.
func (d *driver) operate(ctx context.Context, permit *permits.Permit, line *line) {
	id := line.ID
	held := func(kind string, operation func() error) {
		d.do(func() {
			err := operation()
			switch {
			case errors.Is(err, permits.ErrInvalid):
				d.write(id, "invalid", event{"reason": err.Error()})
			case errors.Is(err, permits.ErrUnavailable):
				d.write(id, "unsure", event{"answers": kind})
			case err == nil:
				d.write(id, "held", event{"answers": kind})
			} // Otherwise the permit has ended, which has its own event.
		})
	}
	if line.Count != nil {
		if err := permit.Count(*line.Count); err != nil {
			d.do(func() { d.write(id, "invalid", event{"reason": err.Error()}) })
		}
	}
	switch {
	case line.Renew:
		held("renew", func() error { return permit.Renew(ctx) })
	case line.ReleasePart != nil:
		held("release_part", func() error { return permit.ReleasePart(ctx, *line.ReleasePart) })
	case line.SetLease != nil:
		held("set_lease_ms", func() error { return permit.SetLease(ctx, duration(*line.SetLease)) })
	case line.HandOver:
		d.do(func() {
			handle, err := permit.HandOver(ctx)
			d.end(id, permit, err, "handed_over", event{"handle": handle})
		})
	case line.Release:
		d.do(func() { d.end(id, permit, permit.Release(ctx), "released", event{}) })
	}
}

// end writes the last event of a permit.
func (d *driver) end(id int, permit *permits.Permit, err error, name string, fields event) {
	var lost *permits.LostError
	switch {
	case errors.As(err, &lost) && context.Cause(permit.Context()) != permits.ErrReleased:
		// The permit was lost before the release, and the end of its context has reported the loss.
	case err != nil:
		d.fail(id, err)
	default:
		d.write(id, name, fields)
	}
}

func main() {
	client, err := permits.Connect(context.Background(), "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(69)
	}
	driver := &driver{client: client, requests: map[int]*request{}}
	hello, _ := json.Marshal(event{"event": "hello", "lines": 1, "has": has})
	fmt.Printf("%s\n", hello)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		line := new(line)
		if err := json.Unmarshal(lines.Bytes(), line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(64)
		}
		driver.take(line)
	}
	driver.mu.Lock()
	driver.isEnding = true
	driver.mu.Unlock()
	err = client.Close()
	driver.events.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(69)
	}
}
