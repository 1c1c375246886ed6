package permits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAPermitIsGrantedAndReleasedOnce(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 3)
	permit := acquire(t, semaphore, Weight(2), Lane("tenant"), Share(2), Holder("me"), Label("text"), Lease(time.Minute), MaxHold(time.Hour))
	if permit.Semaphore() != t.Name() || permit.Holder() != "me" || permit.Weight() != 2 || permit.Slot() != 0 || permit.Token() == 0 {
		t.Errorf("%+v", permit.grant)
	}
	if err := permit.Context().Err(); err != nil {
		t.Error(err)
	}
	if found := stateOf(t, serverURL, t.Name()); found != (state{Held: 2}) {
		t.Errorf("%+v", found)
	}
	release(t, permit)
	release(t, permit)
	if cause := within(t, permit.Context()); cause != ErrReleased {
		t.Error(cause)
	}
	if found := stateOf(t, serverURL, t.Name()); found != (state{}) {
		t.Errorf("%+v", found)
	}
}

func TestTheContextOfAPermitHasTheValuesAndNotTheEndOfItsAcquisition(t *testing.T) {
	type key struct{}
	client := connected(t)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, 7))
	permit, err := client.Semaphore(t.Name(), 1).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if permit.Context().Err() != nil || permit.Context().Value(key{}) != 7 {
		t.Error(permit.Context())
	}
	release(t, permit)
}

func TestRequestsAreGrantedInOrder(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	first := acquire(t, semaphore)
	type grant struct {
		number int
		permit *Permit
	}
	grants := make(chan grant)
	for number := range 20 {
		go func() { grants <- grant{number, acquire(t, semaphore)} }()
		until(t, serverURL, t.Name(), state{Held: 1, Waiting: number + 1})
	}
	release(t, first)
	for number := range 20 {
		grant := <-grants
		if grant.number != number {
			t.Errorf("%d is granted after %d", grant.number, number-1)
		}
		release(t, grant.permit)
	}
}

func TestErrorsSayWhetherALaterAttemptMaySucceed(t *testing.T) {
	client := connected(t)
	ctx := context.Background()
	semaphore := client.Semaphore(t.Name(), 2)
	permit := acquire(t, semaphore, Weight(2), AtLeast(time.Minute))
	if _, err := semaphore.TryAcquire(ctx); !errors.Is(err, ErrNotNow) {
		t.Error(err)
	}
	if _, err := semaphore.Acquire(ctx, Timeout(10*time.Millisecond)); !errors.Is(err, ErrNotNow) {
		t.Error(err)
	}
	handle, err := permit.HandOver(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if permit, err = client.Adopt(ctx, handle); err != nil {
		t.Fatal(err)
	}
	if err := permit.Count(1); err != nil {
		t.Error(err)
	}
	if err := permit.Count(-1); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	release(t, permit)
	if err := permit.Count(1); err != ErrReleased {
		t.Error(err)
	}
	other := acquire(t, semaphore)
	_, err = semaphore.TryAcquire(ctx)
	var refused *Error
	// The end of the minute is rounded up to a millisecond, and the time of the refusal down.
	if !errors.As(err, &refused) || refused.RetryAfter <= 0 || refused.RetryAfter > time.Minute+time.Millisecond || refused.Semaphore != t.Name() {
		t.Errorf("%v %+v", err, refused)
	}
	if err := other.Count(1); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	release(t, other)
	for name, options := range map[string][]Option{
		"exceeds the limit": {Weight(3)},
		"weight":            {Weight(0)},
		"share":             {Share(2)},
		"UTF-8":             {Holder("\xff")},
		"holder":            {Holder(strings.Repeat("h", 201))},
		"too long":          {Label(strings.Repeat("l", maxLine))},
	} {
		_, err := semaphore.Acquire(ctx, options...)
		if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotNow) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Semaphore("no limit yet", StoredLimit).Acquire(ctx); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := client.Semaphore(t.Name(), 3).Acquire(ctx, RequireLimit(), Supersede("key")); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestDoRunsWorkAndReleases(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	failed := errors.New("failed")
	for range 3 {
		err := semaphore.Do(context.Background(), func(ctx context.Context) error {
			if found := stateOf(t, serverURL, t.Name()); found.Held != 1 {
				t.Errorf("%+v", found)
			}
			return failed
		}, Weight(1))
		if err != failed {
			t.Error(err)
		}
	}
	func() {
		defer func() { recover() }()
		semaphore.Do(context.Background(), func(context.Context) error { panic("work") })
	}()
	release(t, acquire(t, semaphore))
	// The context of the work also ends when the caller's context ends.
	ctx, cancel := context.WithCancel(context.Background())
	err := semaphore.Do(ctx, func(ctx context.Context) error {
		cancel()
		return within(t, ctx)
	})
	if err != context.Canceled {
		t.Error(err)
	}
	until(t, serverURL, t.Name(), state{})
}

func TestALossEndsTheContext(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	permit := acquire(t, semaphore)
	operate(t, serverURL, "revoke", t.Name(), permit.Holder(), "--reason", "enough")
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) || !strings.Contains(lost.Reason, "enough") || lost.Semaphore != t.Name() {
		t.Fatal(cause)
	}
	for range 2 {
		if err := permit.Release(context.Background()); !errors.As(err, &lost) {
			t.Error(err)
		}
	}
	failed := errors.New("failed")
	err := semaphore.Do(context.Background(), func(ctx context.Context) error {
		operate(t, serverURL, "revoke", t.Name(), "holder")
		if cause := within(t, ctx); !errors.As(cause, &lost) {
			t.Error(cause)
		}
		return failed
	}, Holder("holder"))
	if !errors.As(err, &lost) || !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestALongestHoldIsALoss(t *testing.T) {
	client := connected(t)
	permit := acquire(t, client.Semaphore(t.Name(), 1), MaxHold(100*time.Millisecond))
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) {
		t.Error(cause)
	}
}

func TestACommandThatIsNotThereSaysHowToGetIt(t *testing.T) {
	ctx := context.Background()
	t.Setenv("PERMITS_PROGRAM", "")
	t.Setenv("PATH", t.TempDir())
	_, err := Connect(ctx, serverURL)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "github.com/permits-rs/permits") || !strings.Contains(err.Error(), "PERMITS_PROGRAM") {
		t.Error(err)
	}
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "permits")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, reason := range map[string]string{
		"echo no such option >&2; exit 64":                        "exit status 64, and its standard error says why",
		"echo Usage; /bin/sleep 1":                                "too old",
		`echo '{"event":"hello","lines":2,"permits":"9"}'`:        "permits 9 speaks version 2 of the lines",
		`echo '{"event":"failed","exit_code":69,"reason":"why"}'`: "why",
	} {
		_, err := Connect(ctx, serverURL, WithProgram(script(text)), WithStderr(nil))
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Connect(ctx, serverURL, WithProgram("/none")); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	assertNoGoroutine(t)
}

func TestAStoreThatIsNotThereIsAnErrorOfConnect(t *testing.T) {
	_, err := Connect(context.Background(), "redis://127.0.0.1:1/", WithFlags("--store-timeout", "200ms"), WithStderr(nil))
	if !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	_, err = Connect(context.Background(), "none://x", WithStderr(nil))
	if !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	_, err = Attach(context.Background(), "unix:"+filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	_, err = Attach(context.Background(), "/run/permits/socket")
	if !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	assertNoGoroutine(t)
}

func TestEveryOptionOfTheLinesIsAnOption(t *testing.T) {
	command := exec.Command(program, "hold", "--many")
	command.Env = append(os.Environ(), "PERMITS_URL=memory:")
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var hello struct{ Has []string }
	if err := json.Unmarshal(text, &hello); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	options, err := os.ReadFile("options.go")
	if err != nil {
		t.Fatal(err)
	}
	// Lines that methods write, and an option for which this package has no use yet.
	others := "acquire limit require_limit release count also renew release_part set_lease_ms hand_over adopt inspect list change auto_renew"
	if len(hello.Has) < 20 {
		t.Errorf("%v", hello.Has)
	}
	for _, name := range hello.Has {
		if !slices.Contains(strings.Fields(others), name) && !strings.Contains(string(options), fmt.Sprintf("f[%q]", name)) {
			t.Errorf("there is no option %s", name)
		}
	}
}

// As under a program that has the URL from a file, such as the worker of contrib/systemd.
func TestTheURLOfConnectCountsAndNotThatOfAFile(t *testing.T) {
	t.Setenv("PERMITS_URL_FILE", filepath.Join(t.TempDir(), "absent"))
	client, err := Connect(context.Background(), serverURL)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

func TestAttachSharesACommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listen := func() *exec.Cmd {
		command := exec.Command(program, "hold", "--listen", "unix:"+path)
		command.Env = append(os.Environ(), "PERMITS_URL="+serverURL)
		out, _ := command.StdoutPipe()
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 1)) // It listens.
		return command
	}
	sidecar := listen()
	attach := func() *Client {
		client, err := Attach(context.Background(), "unix:"+path)
		if err != nil {
			t.Fatal(err)
		}
		closes(t, client)
		return client
	}
	one, other := attach(), attach()
	permit, second := acquire(t, one.Semaphore(t.Name(), 2)), acquire(t, other.Semaphore(t.Name(), 2))
	if childOf(t, permit) != sidecar.Process.Pid {
		t.Error(permit.Holder())
	}
	release(t, permit)
	// A client that ends releases only its own permits.
	acquire(t, one.Semaphore(t.Name(), 2))
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	until(t, serverURL, t.Name(), state{Held: 1})
	sidecar.Process.Kill()
	sidecar.Wait()
	var lost *LostError
	if cause := within(t, second.Context()); !errors.As(cause, &lost) {
		t.Error(cause)
	}
	if _, err := other.Semaphore(t.Name(), 2).Acquire(context.Background()); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	sidecar = listen()
	release(t, acquire(t, other.Semaphore(t.Name(), 2)))
	sidecar.Process.Kill()
	sidecar.Wait()
}
