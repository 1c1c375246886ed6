package main

import (
	"maps"

	"github.com/anishathalye/porcupine"
)

// The operations of a semaphore with leases, as its clients and operators saw them.
type (
	// A request joins the queue.
	enqueue struct {
		request string
		waiter  waiter
	}
	// A request gets its permit.
	grant struct {
		request      string
		lane         string
		laneLimit    int // The most units that the permits of its lane may have; 0: any.
		weight, slot int
		token        uint64
		tokenBefore  uint64 // The greatest token below this one in the whole history.
		asked, by    int64  // The times of the call and of its return.
		mayEndAt     int64  // From this time on nothing shows that the permit is held.
	}
	// A request without a permit leaves the queue.
	leave    struct{ request string }
	release  struct{ request string }
	setLimit struct{ limit int }
	setPause struct{ paused bool }
	setLine  struct{ closed bool }
)

// A request in the queue: its lane, and the time at which it was seen there, or had its permit.
type waiter struct {
	lane  string
	known int64
}

// A state is never changed: a step makes another.
type state struct {
	limit          int
	paused, closed bool
	token          uint64
	waiting        map[string]waiter
	held           map[string]grant
}

// The rules that a history has to keep. Some faults void the bound or the order.
type rules struct {
	limit int  // The one that clients declare.
	bound bool // At most limit units are held, and no slot by two; and a lane keeps to its own limit.
	order bool // No request is granted before another of its lane that was known to wait when the first was made.
}

func (r rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{limit: r.limit, waiting: map[string]waiter{}, held: map[string]grant{}} },
		Step: func(before, input, _ any) (bool, any) { return r.step(before.(state), input) },
		Equal: func(one, other any) bool {
			a, b := one.(state), other.(state)
			return a.limit == b.limit && a.paused == b.paused && a.closed == b.closed && a.token == b.token &&
				maps.Equal(a.waiting, b.waiting) && maps.Equal(a.held, b.held)
		},
	}
}

func (r rules) step(s state, input any) (bool, state) {
	switch input := input.(type) {
	case enqueue:
		s.waiting = with(s.waiting, input.request, input.waiter)
	case grant:
		if !r.allows(s, input) {
			return false, s
		}
		s.waiting, s.held, s.token = without(s.waiting, input.request), with(s.held, input.request, input), input.token
		// Leases end without an operation: what may have ended before no longer counts. The reply to this grant may have been late, and
		// that to the next one early, so what counts is when this one was asked for.
		maps.DeleteFunc(s.held, func(_ string, other grant) bool { return other.mayEndAt <= input.asked && other != input })
	case leave:
		s.waiting = without(s.waiting, input.request)
	case release:
		s.held = without(s.held, input.request)
	case setLimit:
		s.limit = input.limit
	case setPause:
		s.paused = input.paused
	case setLine:
		s.closed = input.closed
	}
	return true, s
}

func (r rules) allows(s state, next grant) bool {
	// Tokens rise. So a grant follows the grant with the token below its own, and the order of all grants is
	// known.
	if _, waits := s.waiting[next.request]; !waits || s.paused || s.closed || s.token != next.tokenBefore {
		return false
	}
	for request, other := range s.waiting {
		if r.order && request != next.request && other.lane == next.lane && other.known < next.asked {
			return false
		}
	}
	units, ofLane, isFree := next.weight, next.weight, next.slot < s.limit
	for _, other := range s.held {
		if other.mayEndAt > next.by {
			units += other.weight
			if other.lane == next.lane {
				ofLane += other.weight
			}
			isFree = isFree && other.slot != next.slot
		}
	}
	return !r.bound || isFree && units <= s.limit && (next.laneLimit == 0 || ofLane <= next.laneLimit)
}
