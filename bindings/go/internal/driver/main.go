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

// A line makes a request, or says something about an earlier one.
type line struct {
	ID           int      `json:"id"`
	Acquire      string   `json:"acquire"`
	Release      bool     `json:"release"`
	Count        *int     `json:"count"`
	Limit        int      `json:"limit"`
	RequireLimit bool     `json:"require_limit"`
	Weight       *int     `json:"weight"`
	Timeout      *float64 `json:"timeout_ms"`
	Holder       *string  `json:"holder"`
	Label        *string  `json:"label"`
	Lane         *string  `json:"lane"`
	Share        *int     `json:"share"`
	Lease        *float64 `json:"lease_ms"`
	AtLeast      *float64 `json:"at_least_ms"`
	MaxHold      *float64 `json:"max_hold_ms"`
	Supersede    *string  `json:"supersede"`
}

var has = []string{
	"acquire", "release", "count", "limit", "require_limit", "weight", "timeout_ms", "holder", "label", "lane", "share",
	"lease_ms", "at_least_ms", "max_hold_ms", "supersede",
}

// with adds an option if the line has its field.
func with[T any](options []permits.Option, value *T, option func(T) permits.Option) []permits.Option {
	if value != nil {
		options = append(options, option(*value))
	}
	return options
}

func milliseconds(option func(time.Duration) permits.Option) func(float64) permits.Option {
	return func(ms float64) permits.Option { return option(time.Duration(ms * float64(time.Millisecond))) }
}

func (l *line) options() (options []permits.Option) {
	options = with(options, l.Weight, permits.Weight)
	options = with(options, l.Timeout, milliseconds(permits.Timeout))
	options = with(options, l.Holder, permits.Holder)
	options = with(options, l.Label, permits.Label)
	options = with(options, l.Lane, permits.Lane)
	options = with(options, l.Share, permits.Share)
	options = with(options, l.Lease, milliseconds(permits.Lease))
	options = with(options, l.AtLeast, milliseconds(permits.AtLeast))
	options = with(options, l.MaxHold, milliseconds(permits.MaxHold))
	options = with(options, l.Supersede, permits.Supersede)
	if l.RequireLimit {
		options = append(options, permits.RequireLimit())
	}
	return options
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
	isEnding bool // No more lines come, so a permit that ends is released.
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
	if name != "granted" && name != "invalid" {
		delete(d.requests, id)
	}
	fmt.Printf("%s\n", text)
}

func (d *driver) acquire(ctx context.Context, request *request, line *line) {
	permit, err := d.client.Semaphore(line.Acquire, line.Limit).Acquire(ctx, line.options()...)
	if err != nil {
		d.fail(line.ID, err)
		return
	}
	d.mu.Lock()
	request.permit = permit
	d.mu.Unlock()
	d.write(line.ID, "granted", event{
		"name": permit.Semaphore(), "holder": permit.Holder(), "weight": permit.Weight(), "slot": permit.Slot(), "token": permit.Token(),
	})
	<-permit.Context().Done()
	if cause := context.Cause(permit.Context()); !errors.Is(cause, permits.ErrReleased) {
		d.fail(line.ID, cause)
	}
}

// fail writes the event of an error.
func (d *driver) fail(id int, err error) {
	var lost *permits.LostError
	var refused *permits.Error
	switch {
	case errors.As(err, &lost):
		d.write(id, "lost", event{"reason": lost.Reason})
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
	ctx, leave := context.WithCancel(context.Background())
	d.mu.Lock()
	known := d.requests[line.ID]
	if line.Acquire != "" {
		known = &request{leave: leave}
		d.requests[line.ID] = known
		d.mu.Unlock()
		go d.acquire(ctx, known, line)
		return
	}
	var permit *permits.Permit
	if known != nil {
		permit = known.permit
	}
	d.mu.Unlock()
	leave()
	switch {
	case known == nil:
		d.write(line.ID, "invalid", event{"reason": "the id is free"})
	case permit == nil:
		known.leave()
	default:
		if line.Count != nil {
			if err := permit.Count(*line.Count); err != nil {
				d.write(line.ID, "invalid", event{"reason": err.Error()})
			}
		}
		if line.Release {
			go d.release(line.ID, permit)
		}
	}
}

func (d *driver) release(id int, permit *permits.Permit) {
	err := permit.Release(context.Background())
	var lost *permits.LostError
	switch {
	case errors.As(err, &lost): // It is told by the permit's context.
	case err != nil:
		d.fail(id, err)
	default:
		d.write(id, "released", event{})
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
	if err := client.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(69)
	}
}
