package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A history: its first line, and what its records say. operations.md has the format.
type history struct {
	Row          string
	Limit        int
	Bound        bool
	Order        bool
	Keep         bool
	acquisitions []*acquisition
	changes      []porcupine.Operation
	kills        int
	faults       int
}

// A request and its permit. What did not happen has the time never.
type acquisition struct {
	name, semaphore, lane                                   string // Of the workers' semaphore: no name.
	laneLimit                                               int    // 0: none.
	weight, slot                                            int
	token                                                   uint64
	asked, seen, acquired, until, lost, releasing, released int64
	waited, ended                                           int64 // It was last seen in the queue, and ended without a permit.
}

const never = math.MaxInt64

type record struct {
	Worker int
	At     int64 // Microseconds by a clock that all processes of the machine share.
	Tag    string
	Event  json.RawMessage
}

// An event with fields. Others are strings.
type event struct {
	Asked  *struct{ Weight int }
	InLine *string
	InLane *struct {
		Lane  string
		Limit int
	}
	Acquired *struct {
		Token uint64
		Slot  int
		Until int64
	}
	Held     *struct{ Until int64 }
	Lost     *string
	Released map[string]*string
	Changing *struct {
		Change string
		Limit  int
	}
	Changed        map[string]*string
	Fault          *string
	GaveUp, Failed *string
}

func read(from io.Reader) (*history, error) {
	lines, h := bufio.NewScanner(from), &history{}
	if !lines.Scan() {
		return nil, fmt.Errorf("the history is empty")
	}
	if err := json.Unmarshal(lines.Bytes(), h); err != nil {
		return nil, err
	}
	if h.Keep {
		return nil, fmt.Errorf("row %s: the model has no permits that clients keep", h.Row)
	}
	found := map[string]*acquisition{}
	var change porcupine.Operation
	for lines.Scan() {
		var line record
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		name := fmt.Sprintf("%d/%s", line.Worker, line.Tag)
		of := found[name]
		if of == nil {
			of = &acquisition{name: name, seen: never, acquired: never, lost: never, releasing: never, released: never, ended: never}
			found[name] = of
		}
		switch string(line.Event) {
		case `"Enqueued"`:
			of.seen = line.At
		case `"Waiting"`:
			of.waited = line.At
		case `"NotHeld"`:
			of.lost = min(of.lost, line.At)
		case `"Releasing"`:
			of.releasing = line.At
		case `"Killed"`:
			h.kills++
		}
		if line.Event[0] != '{' {
			continue
		}
		var event event
		if err := json.Unmarshal(line.Event, &event); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		switch {
		case event.Asked != nil:
			of.asked, of.weight = line.At, event.Asked.Weight
			h.acquisitions = append(h.acquisitions, of)
		case event.InLine != nil:
			of.semaphore = *event.InLine
		case event.InLane != nil:
			of.lane, of.laneLimit = event.InLane.Lane, event.InLane.Limit
		case event.Acquired != nil:
			of.acquired, of.until = line.At, event.Acquired.Until
			of.token, of.slot = event.Acquired.Token, event.Acquired.Slot
		case event.GaveUp != nil || event.Failed != nil:
			of.ended = line.At
		case event.Held != nil:
			of.until = max(of.until, event.Held.Until)
		case event.Lost != nil:
			of.lost = min(of.lost, line.At)
		case event.Released != nil && event.Released["Err"] == nil:
			of.released = line.At
		case event.Changing != nil:
			change = porcupine.Operation{Call: line.At, Input: input(event.Changing.Change, event.Changing.Limit)}
		case event.Changed != nil:
			if change.Return = line.At; event.Changed["Err"] != nil || change.Input == nil {
				return nil, fmt.Errorf("%q: a change whose effect is not known", lines.Text())
			}
			h.changes = append(h.changes, change)
		case event.Fault != nil:
			h.faults++
		}
	}
	return h, lines.Err()
}

func input(change string, limit int) any {
	switch change {
	case "set_limit":
		return setLimit{limit}
	case "pause", "resume":
		return setPause{change == "pause"}
	case "close_line", "open_line":
		return setLine{change == "close_line"}
	}
	return nil
}

// The semaphores of a history. A set is a request in each of its semaphores.
func (h *history) semaphores() []string {
	found := []string{""}
	for _, of := range h.acquisitions {
		if !slices.Contains(found, of.semaphore) {
			found = append(found, of.semaphore)
		}
	}
	return found
}

// The operations on a semaphore. A request without a permit matters if it was seen in the queue: no later one
// may have its permit while it waits.
func (h *history) operations(semaphore string) []porcupine.Operation {
	var made []porcupine.Operation
	if semaphore == "" {
		made = slices.Clone(h.changes)
	}
	acquisitions := slices.DeleteFunc(slices.Clone(h.acquisitions), func(of *acquisition) bool { return of.semaphore != semaphore })
	add := func(call, end int64, input any) {
		made = append(made, porcupine.Operation{Input: input, Call: call, Return: end})
	}
	var tokens []uint64
	for _, of := range acquisitions {
		if of.acquired != never {
			tokens = append(tokens, of.token)
		}
	}
	slices.Sort(tokens)
	for _, of := range acquisitions {
		if of.acquired == never {
			if of.waited > 0 {
				add(of.asked, of.asked, enqueue{of.name, waiter{of.lane, of.seen}})
				add(of.waited, max(of.waited, of.ended), leave{of.name})
			}
			continue
		}
		next := grant{request: of.name, lane: of.lane, laneLimit: of.laneLimit, weight: of.weight, slot: of.slot,
			token: of.token, asked: of.asked, by: of.acquired}
		if at, _ := slices.BinarySearch(tokens, of.token); at > 0 {
			next.tokenBefore = tokens[at-1]
		}
		next.mayEndAt = min(of.until, of.lost)
		if of.released == never {
			next.mayEndAt = min(next.mayEndAt, of.releasing)
		} else {
			add(of.releasing, of.released, release{of.name})
		}
		// The acquisition joins at once: an earlier moment forbids nothing, because others are bound from the time
		// on at which it was known to wait. So the search need not try them all.
		add(of.asked, of.asked, enqueue{of.name, waiter{of.lane, min(of.seen, of.acquired)}})
		add(of.asked, of.acquired, next)
	}
	return made
}

// A map with one entry more, and one with an entry less: a state may be in use elsewhere.
func with[V any](of map[string]V, key string, value V) map[string]V {
	of = maps.Clone(of)
	of[key] = value
	return of
}

func without[V any](of map[string]V, key string) map[string]V {
	of = maps.Clone(of)
	delete(of, key)
	return of
}
