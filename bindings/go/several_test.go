package permits

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestASetIsAcquiredReleasedAndCancelledAsAWhole(t *testing.T) {
	client := connected(t)
	ctx := context.Background()
	exports := client.Semaphore(t.Name()+"/exports", 2).With(Weight(2), Holder("me"))
	minute := client.Semaphore(t.Name()+"/minute", 1)
	both := exports.Also(minute.With(Holder("you")))
	permit := acquire(t, both)
	also := permit.Also()
	if permit.Semaphore() != exports.name || permit.Weight() != 2 || permit.Holder() != "me" {
		t.Errorf("%+v", permit.grant)
	}
	if len(also) != 1 || also[0].Semaphore != minute.name || also[0].Weight != 1 || also[0].Holder != "you" || also[0].Token == 0 {
		t.Errorf("%+v", also)
	}
	if _, err := both.TryAcquire(ctx); !errors.Is(err, ErrNotNow) {
		t.Error(err)
	}
	if _, err := permit.HandOver(ctx); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	release(t, permit)
	until(t, serverURL, minute.name, state{})
	until(t, serverURL, exports.name, state{})

	// The order in which they are named does not matter, and a set that waits is left as a whole.
	permit = acquire(t, minute)
	for _, set := range []*Semaphore{exports.Also(minute), minute.Also(exports)} {
		ending, cancel := context.WithCancel(ctx)
		result := make(chan error)
		go func() {
			_, err := set.Acquire(ending)
			result <- err
		}()
		until(t, serverURL, minute.name, state{Held: 1, Waiting: 1})
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		until(t, serverURL, minute.name, state{Held: 1})
		until(t, serverURL, exports.name, state{})
	}
	release(t, permit)
}

func TestASetIsLostWithAnyOfItsPermits(t *testing.T) {
	client := connected(t)
	first, second, third := client.Semaphore(t.Name()+"/1", 1), client.Semaphore(t.Name()+"/2", 1), client.Semaphore(t.Name()+"/3", 1)
	permit := acquire(t, first.Also(second.Also(third)))
	if len(permit.Also()) != 2 {
		t.Fatalf("%+v", permit.Also())
	}
	operate(t, serverURL, "revoke", third.name, permit.Also()[1].Holder)
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) || lost.Semaphore != third.name {
		t.Error(cause)
	}
	for _, semaphore := range []*Semaphore{first, second, third} {
		until(t, serverURL, semaphore.name, state{})
	}
}

func TestTheErrorOfASetNamesTheSemaphore(t *testing.T) {
	client := connected(t)
	free, taken := client.Semaphore(t.Name()+"/free", 1), client.Semaphore(t.Name()+"/taken", 1)
	permit := acquire(t, taken)
	_, err := free.Also(taken.With(Timeout(10*time.Millisecond))).Acquire(context.Background(), Timeout(hangs))
	if !errors.Is(err, ErrNotNow) || !strings.Contains(err.Error(), taken.name) {
		t.Error(err)
	}
	_, err = free.Also(taken.With(Weight(2))).Acquire(context.Background())
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), taken.name) {
		t.Error(err)
	}
	if _, err = free.Also(taken.With(Label("\xff"))).Acquire(context.Background()); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	release(t, permit)
	until(t, serverURL, free.name, state{})
	other := new(Client).Semaphore("other", 1)
	defer func() {
		if recover() == nil {
			t.Error("a semaphore of another client is taken")
		}
	}()
	free.Also(other)
}

// A semaphore is a value: what is made of it does not change it.
func TestOptionsOfASemaphoreComeBeforeThoseOfARequest(t *testing.T) {
	client := connected(t)
	base := client.Semaphore(t.Name(), 9).With(Weight(2))
	one, other := base.With(Label("one"), Weight(3)), base.With(Label("other"))
	for wanted, permit := range map[int]*Permit{
		1: acquire(t, one, Weight(1)),
		3: acquire(t, one),
		2: acquire(t, other),
	} {
		if permit.Weight() != wanted {
			t.Errorf("%d is not %d", permit.Weight(), wanted)
		}
		release(t, permit)
	}
	if _, err := one.TryAcquire(context.Background(), Weight(10)); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
