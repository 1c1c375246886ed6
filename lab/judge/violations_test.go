package main

import (
	"cmp"
	"compress/gzip"
	"os"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

// Reads the history of a run in which clients were killed.
func recorded(t *testing.T) *history {
	file, err := os.Open("testdata/client-kill.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	h, err := read(lines)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *history) isAllowed() bool {
	for _, semaphore := range h.semaphores() {
		if !porcupine.CheckOperations(rules{h.Limit, h.Bound, h.Order}.model(), h.operations(semaphore)) {
			return false
		}
	}
	return true
}

func TestARecordedHistoryIsAllowed(t *testing.T) {
	h := recorded(t)
	if !h.isAllowed() || h.kills == 0 || !h.Bound || !h.Order {
		t.Fatal("the history is to have kills, and to be allowed by all rules")
	}
}

// A reply that comes late hides no holder from the grant after it.
func TestAHolderIsNotForgottenByALateReply(t *testing.T) {
	r := rules{limit: 2, bound: true}
	waits := map[string]waiter{"b": {}, "a": {}, "c": {}}
	s := state{limit: 2, waiting: waits, held: map[string]grant{}}
	for _, next := range []grant{
		{request: "b", weight: 1, slot: 0, token: 1, asked: 0, by: 1, mayEndAt: 9},
		{request: "a", weight: 1, slot: 1, token: 2, tokenBefore: 1, asked: 1, by: 10, mayEndAt: 12},
	} {
		allowed, after := r.step(s, next)
		if !allowed {
			t.Fatalf("%v is to be allowed", next)
		}
		s = after
	}
	third := grant{request: "c", weight: 1, slot: 0, token: 3, tokenBefore: 2, asked: 2, by: 3, mayEndAt: 8}
	if allowed, _ := r.step(s, third); allowed {
		t.Fatal("both units are held")
	}
}

// Edits two acquisitions, of which the first has the permit first, so that a rule is broken. Returns false if
// these two cannot break it.
type violation func(h *history, a, b *acquisition) bool

var violations = map[string]violation{
	"a unit more than the limit": func(_ *history, a, b *acquisition) bool {
		fits := bothHold(a, b)
		b.weight = 2
		return fits
	},
	"a slot held twice": func(_ *history, a, b *acquisition) bool {
		fits := bothHold(a, b)
		b.slot = a.slot
		return fits
	},
	"a token twice": func(_ *history, a, b *acquisition) bool {
		b.token = a.token
		return true
	},
	"a unit more than the limit of the other semaphore": func(_ *history, a, b *acquisition) bool {
		fits := bothHold(a, b)
		a.semaphore, b.semaphore, b.weight = "other", "other", 2
		return fits
	},
	"overtaking": overtaking,
	"overtaking within a lane": func(h *history, a, b *acquisition) bool {
		a.lane, b.lane = "lane", "lane"
		return overtaking(h, a, b)
	},
	"more units than the limit of a lane": func(_ *history, a, b *acquisition) bool {
		a.lane, b.lane, a.laneLimit, b.laneLimit = "lane", "lane", 1, 1
		return bothHold(a, b)
	},
	"a waiter that is overtaken until it gives up": func(_ *history, a, b *acquisition) bool {
		fits := a.seen < b.asked && a.acquired < b.acquired
		a.acquired, a.waited, a.ended = never, b.acquired+1, b.acquired+2
		return fits
	},
	"a grant after the line was closed": func(h *history, a, b *acquisition) bool {
		h.changes = append(h.changes,
			porcupine.Operation{Input: setLine{true}, Call: a.acquired + 1, Return: b.asked - 1},
			porcupine.Operation{Input: setLine{false}, Call: b.acquired + 1, Return: b.acquired + 2})
		return a.acquired+1 < b.asked-1
	},
}

// The later request takes the permit of the request that waited before it.
func overtaking(_ *history, a, b *acquisition) bool {
	fits := a.seen < b.asked && b.asked < a.acquired
	swapped, other := *a, *b
	*a, *b = other, swapped
	a.name, a.asked, a.seen, b.name, b.asked, b.seen = b.name, swapped.asked, swapped.seen, a.name, other.asked, other.seen
	return fits
}

// Histories that look like violations and are allowed: semaphores have nothing to do with each other, and
// lanes are in no order among each other, and have a limit each.
var allowed = map[string]violation{
	"the limits of two semaphores": func(_ *history, a, b *acquisition) bool {
		fits := bothHold(a, b)
		a.semaphore, a.weight = "other", 2
		return fits
	},
	"overtaking another lane": func(h *history, a, b *acquisition) bool {
		a.lane, b.lane = "one", "other"
		return overtaking(h, a, b)
	},
	"the limits of two lanes": func(_ *history, a, b *acquisition) bool {
		a.lane, b.lane, a.laneLimit, b.laneLimit = "one", "other", 1, 1
		return bothHold(a, b)
	},
}

// Each has one of the two units: the first still holds when the second gets its permit.
func bothHold(a, b *acquisition) bool {
	return a.weight == 1 && b.weight == 1 && b.acquired < min(a.releasing, a.lost, a.until)
}

func TestPlantedViolationsAreFound(t *testing.T) {
	planted(t, violations, false)
}

func TestWhatLanesMayDoIsAllowed(t *testing.T) {
	planted(t, allowed, true)
}

// Plants each into many places, and expects that the history is allowed there, or is not.
func planted(t *testing.T, violations map[string]violation, expected bool) {
	for name, plant := range violations {
		t.Run(name, func(t *testing.T) {
			h, planted := recorded(t), 0
			granted := slices.DeleteFunc(slices.Clone(h.acquisitions), func(of *acquisition) bool { return of.acquired == never })
			slices.SortFunc(granted, func(a, b *acquisition) int { return cmp.Compare(a.acquired, b.acquired) })
			for first, a := range granted {
				for _, b := range granted[first+1 : min(first+10, len(granted))] {
					beforeA, beforeB, changes := *a, *b, h.changes
					if planted < 20 && plant(h, a, b) {
						planted++
						if h.isAllowed() != expected {
							t.Errorf("allowed: %v, planted into %+v and %+v", !expected, beforeA, beforeB)
						}
					}
					*a, *b, h.changes = beforeA, beforeB, changes
				}
			}
			if planted == 0 {
				t.Error("the history has no place for it")
			}
		})
	}
}
