package permits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func changed(t *testing.T, semaphore *Semaphore, change Change) Changed {
	t.Helper()
	changed, err := semaphore.Change(context.Background(), change)
	if err != nil {
		t.Fatalf("%+v: %v", change, err)
	}
	return changed
}

func inspected(t *testing.T, semaphore *Semaphore) *Inspection {
	t.Helper()
	inspection, err := semaphore.Inspect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return inspection
}

func TestAnInspectionIsThatOfTheCommand(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 2)
	permit := acquire(t, semaphore, Holder("holder"), Weight(2), Label("label"), Lane("lane"))
	waits := make(chan *Permit)
	go func() { waits <- acquire(t, semaphore, Holder("waiter")) }()
	until(t, serverURL, t.Name(), state{Held: 2, Waiting: 1})
	changed(t, semaphore, Pause{Reason: "moved"})
	changed(t, semaphore, Resume{})
	inspection := inspected(t, semaphore)
	holder := inspection.Holders[0]
	if holder.Holder != "holder" || holder.Weight != 2 || *holder.Label != "label" || *holder.Lane != "lane" || holder.Token != permit.Token() || holder.LeaseRemainingMS <= 0 {
		t.Errorf("%+v", holder)
	}
	if inspection.Closed != nil || inspection.PauseReason != nil || *inspection.Limit != 2 || inspection.Changes[0].Change != "resumed" {
		t.Errorf("%+v", inspection)
	}
	// Every field of the command is there, and has the same value, apart from times, which go on.
	command := exec.Command(program, "status", "--json", "--", t.Name())
	command.Env = append(os.Environ(), "PERMITS_URL="+serverURL)
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	own, _ := json.Marshal(inspection)
	var ofCommand, ofPackage map[string]any
	if err := errors.Join(json.Unmarshal(text, &ofCommand), json.Unmarshal(own, &ofPackage)); err != nil {
		t.Fatal(err)
	}
	delete(ofCommand, "store")
	if one, other := withoutTimes("", ofCommand), withoutTimes("", ofPackage); !reflect.DeepEqual(one, other) {
		t.Errorf("%v is not %v", other, one)
	}
	release(t, permit)
	release(t, <-waits)
}

// withoutTimes replaces numbers that are times by whether there is one.
func withoutTimes(name string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name := range value {
			value[name] = withoutTimes(name, value[name])
		}
	case []any:
		for number := range value {
			value[number] = withoutTimes("", value[number])
		}
	case float64:
		if strings.HasSuffix(name, "_ms") {
			return "a time"
		}
	}
	return value
}

// The command takes 64 calls at once.
func TestAnyNumberOfCallsIsAnswered(t *testing.T) {
	client := connected(t)
	results := make(chan error)
	for range 500 {
		go func() {
			_, err := client.Semaphore(t.Name(), 1).Inspect(context.Background())
			results <- err
		}()
	}
	for range 500 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestEveryChangeIsMade(t *testing.T) {
	// The command warns that another limit is in force.
	client := connectTo(t, serverURL, WithStderr(nil))
	ctx := context.Background()
	semaphore := client.Semaphore(t.Name(), 4)
	permit := acquire(t, semaphore, Holder("me"))
	set := changed(t, semaphore, SetLimit{Limit: 3})
	if !set.Found || set.Limit != 3 || set.LimitVersion == 0 {
		t.Errorf("%+v", set)
	}
	if found := changed(t, semaphore, SetLimit{Limit: 5, IfVersion: &set.LimitVersion}); found.Limit != 5 {
		t.Errorf("%+v", found)
	}
	if _, err := semaphore.Change(ctx, SetLimit{Limit: 6, IfVersion: &set.LimitVersion}); !errors.Is(err, ErrNotNow) {
		t.Error(err)
	}
	if found := changed(t, semaphore, AdjustLimit{By: -2}); found.Limit != 3 {
		t.Errorf("%+v", found)
	}
	changed(t, semaphore, SetAlert{Wait: 30 * time.Second, Waiting: 7})
	changed(t, semaphore, Pause{Time: time.Hour, Reason: "upgrade"})
	state := inspected(t, semaphore)
	if !state.Pinned || !state.Paused || *state.PauseReason != "upgrade" || *state.PauseRemainingMS > 3_600_000 || *state.Alert.WaitMS != 30_000 || *state.Alert.Waiting != 7 {
		t.Errorf("%+v", state)
	}
	var refused *Error
	if _, err := semaphore.TryAcquire(ctx); !errors.As(err, &refused) || !refused.StandsStill || refused.RetryAfter <= 0 {
		t.Error(err)
	}
	changed(t, semaphore, Resume{})
	changed(t, semaphore, Pause{})
	if state := inspected(t, semaphore); !state.Paused || state.PauseRemainingMS != nil || *state.PauseReason != "" {
		t.Errorf("%+v", state)
	}
	changed(t, semaphore, Resume{})
	changed(t, semaphore, SetAlert{Waiting: 8})
	changed(t, semaphore, Unpin{})
	changed(t, semaphore, CloseLine{Reason: "moved"})
	if state := inspected(t, semaphore); state.Pinned || state.Paused || *state.Closed != "moved" || state.Alert.WaitMS != nil {
		t.Errorf("%+v", state)
	}
	changed(t, semaphore, OpenLine{})
	changed(t, semaphore, SetLane{Lane: "tenant-7", Limit: 2, Floor: 1})
	if lanes := inspected(t, semaphore).Lanes; !lanes[len(lanes)-1].Pinned || *lanes[len(lanes)-1].Limit != 2 {
		t.Errorf("%+v", lanes)
	}
	changed(t, semaphore, UnpinLane{Lane: "tenant-7"})
	if _, err := semaphore.Change(ctx, Delete{}); !errors.Is(err, ErrNotNow) {
		t.Error(err)
	}
	if found := changed(t, semaphore, Revoke{Holder: "me", Reason: "enough"}); !found.Found {
		t.Errorf("%+v", found)
	}
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) || !strings.Contains(lost.Reason, "enough") {
		t.Error(cause)
	}
	if found := changed(t, semaphore, Revoke{Holder: "me"}); found.Found {
		t.Errorf("%+v", found)
	}
	if found := changed(t, semaphore, Delete{}); !found.Found {
		t.Errorf("%+v", found)
	}
	if found := changed(t, semaphore, Delete{Unreadable: true}); found.Found {
		t.Errorf("%+v", found)
	}
	for _, change := range []Change{SetLimit{}, SetLimit{Limit: -1}, Pause{Time: -time.Second}, Revoke{}, AdjustLimit{By: 1}, SetLane{Lane: "a"}, UnpinLane{}} {
		if _, err := semaphore.Change(ctx, change); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", change, err)
		}
	}
	cooling := client.Semaphore(t.Name()+"/cooling", 1)
	permit = acquire(t, cooling, AtLeast(time.Hour))
	release(t, permit)
	if found := changed(t, cooling, Revoke{Holder: permit.Holder(), Token: permit.Token()}); !found.Found {
		t.Errorf("%+v", found)
	}
	release(t, acquire(t, cooling))
}

func TestAListHasAllNamesHoweverLong(t *testing.T) {
	server, err := startServer(freePort())
	if err != nil {
		t.Fatal(err)
	}
	defer server.kill()
	client := connectTo(t, server.url())
	defer client.Close()
	if names, err := client.List(context.Background()); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
	const number = 6000
	wanted := make([]string, number)
	done := make(chan error)
	for index := range wanted {
		wanted[index] = fmt.Sprintf("%0195d", index)
		go func() {
			_, err := client.Semaphore(wanted[index], 1).Acquire(context.Background())
			done <- err
		}()
	}
	for range wanted {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	// The event is longer than a megabyte.
	names, err := client.List(context.Background())
	slices.Sort(names)
	if err != nil || !slices.Equal(names, wanted) {
		t.Errorf("%v, %d names", err, len(names))
	}
}

func TestAPermitIsRenewedAndReleasedInParts(t *testing.T) {
	client := connected(t)
	ctx := context.Background()
	semaphore := client.Semaphore(t.Name(), 4)
	permit := acquire(t, semaphore, Weight(4))
	done := make(chan error)
	// The command answers one at a time, so these wait for one another.
	for range 20 {
		go func() { done <- permit.Renew(ctx) }()
		go func() { done <- permit.SetLease(ctx, time.Minute) }()
	}
	for range 3 {
		go func() { done <- permit.ReleasePart(ctx, 1) }()
	}
	for range 43 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if found := stateOf(t, serverURL, t.Name()); found.Held != 1 || permit.Weight() != 1 {
		t.Errorf("%+v, %d", found, permit.Weight())
	}
	if lease := inspected(t, semaphore).Holders[0].LeaseRemainingMS; lease < 20_000 {
		t.Errorf("%d ms", lease)
	}
	for _, err := range []error{permit.ReleasePart(ctx, 1), permit.ReleasePart(ctx, 0), permit.SetLease(ctx, time.Millisecond)} {
		if !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := permit.Renew(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := permit.Renew(ctx); err != nil {
		t.Error(err)
	}
	release(t, permit)
	if err := permit.Renew(ctx); err != ErrReleased {
		t.Error(err)
	}
	permit = acquire(t, semaphore)
	operate(t, serverURL, "revoke", t.Name(), permit.Holder())
	within(t, permit.Context())
	var lost *LostError
	if err := permit.Renew(ctx); !errors.As(err, &lost) {
		t.Error(err)
	}
}

func TestAHandleGoesOnWithAnotherClientOnce(t *testing.T) {
	client, ctx := connected(t), context.Background()
	other, err := Connect(ctx, serverURL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	permit := acquire(t, client.Semaphore(t.Name(), 1), Holder("build"))
	handle, err := permit.HandOver(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if cause := within(t, permit.Context()); cause != ErrReleased {
		t.Error(cause)
	}
	adopted, err := other.Adopt(ctx, handle)
	if err != nil {
		t.Fatal(err)
	}
	if adopted.Semaphore() != t.Name() || adopted.Holder() != "build" || adopted.Token() != permit.Token() {
		t.Errorf("%+v", adopted.grant)
	}
	// The command refuses this count, which is not an answer to what follows.
	if err := adopted.Count(1); err != nil {
		t.Error(err)
	}
	if err := errors.Join(adopted.SetLease(ctx, time.Minute), adopted.Renew(ctx)); err != nil {
		t.Error(err)
	}
	var lost *LostError
	if _, err := client.Adopt(ctx, handle); !errors.As(err, &lost) || strings.Contains(err.Error(), `""`) {
		t.Error(err)
	}
	if _, err := client.Adopt(ctx, "none"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if again, err := permit.HandOver(ctx); err != nil || again != handle {
		t.Error(err)
	}
	release(t, adopted)
	if _, err := adopted.HandOver(ctx); err != ErrReleased {
		t.Error(err)
	}
}
