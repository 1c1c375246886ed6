package permits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAnEndedContextRequestsNothing(t *testing.T) {
	client := connected(t)
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	_, err := client.Semaphore(t.Name(), 1).Acquire(ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Error(err)
	}
	if found := stateOf(t, serverURL, t.Name()); found != (state{}) {
		t.Errorf("%+v", found)
	}
	for range 20 {
		if _, err := Connect(ctx, serverURL); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := Attach(ctx, "unix:"+filepath.Join(t.TempDir(), "socket")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// script makes a program for the shell, and returns its path.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "permits")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The second program starts another one, which keeps its standard error.
func TestAContextEndsTheStart(t *testing.T) {
	for _, text := range []string{"exec sleep 60", "sleep 60"} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := Connect(ctx, serverURL, WithProgram(script(t, text)), WithStderr(new(bytes.Buffer)))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > startTimeout {
			t.Error(err, time.Since(began))
		}
	}
	assertNoGoroutine(t)
}

func TestCloseEndsTheStartOfAnotherCommand(t *testing.T) {
	hangs, began := filepath.Join(t.TempDir(), "hangs"), filepath.Join(t.TempDir(), "began")
	text := fmt.Sprintf("if [ -e %q ]; then touch %q; exec sleep 60; fi\nexec %q \"$@\"", hangs, began, program)
	client, err := Connect(context.Background(), serverURL, WithProgram(script(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	semaphore := client.Semaphore(t.Name(), 1)
	permit := acquire(t, semaphore)
	if err := os.WriteFile(hangs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	send(t, childOf(t, permit), syscall.SIGTERM)
	within(t, permit.Context())
	result := make(chan error)
	go func() {
		_, err := semaphore.Acquire(context.Background())
		result <- err
	}()
	for {
		if _, err := os.Stat(began); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; err != ErrClosed {
		t.Error(err)
	}
	assertNoGoroutine(t)
}

func TestAContextEndsTheWaitInLine(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	permit := acquire(t, semaphore)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() {
		_, err := semaphore.Acquire(ctx)
		result <- err
	}()
	until(t, serverURL, t.Name(), state{Held: 1, Waiting: 1})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	until(t, serverURL, t.Name(), state{Held: 1})
	release(t, permit)
}

// The context ends at any time around the grant.
func TestAContextThatEndsAtTheGrantLeavesNothing(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	granted, ended := 0, 0
	for round := range 300 {
		permit := acquire(t, semaphore)
		ctx, cancel := context.WithCancel(context.Background())
		waits := make(chan struct{})
		go func() {
			defer close(waits)
			other, err := semaphore.Acquire(ctx)
			if err == nil {
				granted++
				if err := other.Release(context.Background()); err != nil {
					t.Error(err)
				}
			} else if errors.Is(err, context.Canceled) {
				ended++
			} else {
				t.Error(err)
			}
		}()
		go permit.Release(context.Background())
		time.Sleep(time.Duration(round) * 5 * time.Microsecond)
		cancel()
		<-waits
	}
	if granted < 10 || ended < 10 {
		t.Errorf("%d granted, %d ended", granted, ended)
	}
	until(t, serverURL, t.Name(), state{})
	release(t, acquire(t, semaphore))
}

func TestAnEndedContextReleasesNevertheless(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 {
		permit := acquire(t, semaphore)
		if err := permit.Release(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// A second call returns what the first one has found, once that is confirmed.
		release(t, permit)
	}
	until(t, serverURL, t.Name(), state{})
}

// The command reads nothing, so the pipe fills up, and then the queue.
func TestAFullPipeDelaysNoContext(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 10_000)
	permit := acquire(t, semaphore)
	child := childOf(t, permit)
	send(t, child, syscall.SIGSTOP)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	for number := range 5000 {
		all.Add(1)
		go func() {
			defer all.Done()
			_, err := semaphore.Acquire(ctx, Label(fmt.Sprintf("%0100d", number)))
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
	}
	conn := client.launch.conn
	isFull := func() bool { return len(conn.room) == maxQueued }
	for began := time.Now(); !isFull(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("the queue was never full")
		}
	}
	began := time.Now()
	cancel()
	all.Wait()
	if err := permit.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Error(took)
	}
	conn.mu.Lock()
	if queued := len(conn.queue); queued > 40*5000+300*maxQueued {
		t.Errorf("%d bytes are queued", queued)
	}
	conn.mu.Unlock()
	send(t, child, syscall.SIGCONT)
	release(t, permit)
	until(t, serverURL, t.Name(), state{})
}

func TestCloseEndsWaitsAndPermits(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	permit := acquire(t, semaphore)
	result := make(chan error)
	for range 2 {
		go func() {
			_, err := semaphore.Acquire(context.Background())
			result <- err
		}()
	}
	until(t, serverURL, t.Name(), state{Held: 1, Waiting: 2})
	for range 2 {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := <-result; err != ErrClosed {
			t.Error(err)
		}
	}
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) || lost.Reason != "the client is closed" {
		t.Error(cause)
	}
	if _, err := semaphore.Acquire(context.Background()); err != ErrClosed {
		t.Error(err)
	}
	until(t, serverURL, t.Name(), state{})
	if left := children(program); len(left) > 0 {
		t.Error(left)
	}
}

// Close first does what was asked for before.
func TestCloseFollowsWhatIsQueued(t *testing.T) {
	client := connected(t)
	for number := range 6 {
		other, err := Connect(context.Background(), serverURL)
		if err != nil {
			t.Fatal(err)
		}
		// Its units stay taken for an hour: with -count 2 it has another name.
		name := fmt.Sprintf("%s/%d/%d", t.Name(), number, time.Now().UnixNano())
		permit := acquire(t, other.Semaphore(name, 9), Weight(9), AtLeast(time.Hour))
		if err := permit.Count(1); err != nil {
			t.Error(err)
		}
		permit.call.end("release")
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		if permit, err := client.Semaphore(name, 9).TryAcquire(context.Background(), Weight(8)); err != nil {
			t.Error(err)
		} else {
			release(t, permit)
		}
	}
}
