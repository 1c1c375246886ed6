package permits

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const hello = `{"event":"hello","lines":1}`

// A command is a function of a test in place of the command, in a goroutine of its own: the first, second, …
// of its client. It reads the lines and writes the events. When it returns, the command has ended.
type command func(number int, lines *bufio.Scanner, events io.Writer)

// served returns a client of such commands. Stopped is called when one has been stopped.
func served(t *testing.T, serve command, stopped func(number int)) *Client {
	t.Helper()
	var number atomic.Int32
	client, err := connect(context.Background(), func(context.Context) (*conn, error) {
		number := int(number.Add(1))
		in, lines := io.Pipe()
		events, out := io.Pipe()
		end := func() {
			in.Close()
			out.Close()
		}
		go func() {
			defer end()
			serve(number, bufio.NewScanner(in), out)
		}()
		return newConn(lines, events, lines.Close, func() string {
			end()
			stopped(number)
			return "stopped"
		}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closes(t, client)
	return client
}

func nothing(int) {}

// grants says hello, and grants all requests until its end.
func grants(lines *bufio.Scanner, events io.Writer) {
	fmt.Fprintln(events, hello)
	for lines.Scan() {
		var line struct {
			ID      int
			Acquire string
		}
		json.Unmarshal(lines.Bytes(), &line)
		name := "released"
		if line.Acquire != "" {
			name = "granted"
		}
		fmt.Fprintf(events, `{"id":%d,"event":%q,"name":"exports","weight":1}`+"\n", line.ID, name)
	}
}

// wait polls until something is so.
func wait(t *testing.T, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(hangs); !isSo(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it hangs")
		}
	}
}

// waiting returns how many goroutines wait for a command.
func waiting() int {
	stacks := make([]byte, 1<<22)
	number := 0
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		state, calls, _ := strings.Cut(stack, "\n")
		if strings.Contains(state, "[select") && strings.Contains(calls, "(*Client).connection(") {
			number++
		}
	}
	return number
}

// acquires makes 50 requests, and returns when all wait for a command.
func acquires(t *testing.T, ctx context.Context, client *Client) <-chan error {
	t.Helper()
	results := make(chan error, 50)
	for range cap(results) {
		go func() {
			_, err := client.Semaphore("exports", 100).Acquire(ctx)
			results <- err
		}()
	}
	wait(t, func() bool { return waiting() == cap(results) })
	return results
}

// The deadline of each caller may be shorter than a start takes.
func TestAStartGoesOnWhenItsCallersLeave(t *testing.T) {
	kill, ready := make(chan struct{}), make(chan struct{})
	var started atomic.Int32
	client := served(t, func(number int, lines *bufio.Scanner, events io.Writer) {
		started.Store(int32(number))
		if number == 1 {
			fmt.Fprintln(events, hello)
			<-kill
			return
		}
		<-ready
		grants(lines, events)
	}, nothing)
	close(kill)
	<-client.launch.conn.dead
	ctx, cancel := context.WithCancel(context.Background())
	results := acquires(t, ctx, client)
	cancel()
	for range cap(results) {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	close(ready)
	release(t, acquire(t, client.Semaphore("exports", 1)))
	if number := started.Load(); number != 2 {
		t.Errorf("%d starts", number)
	}
}

func TestCallersShareTheErrorOfAStartAndTheNextOneStartsAgain(t *testing.T) {
	kill, ready := make(chan struct{}), make(chan struct{})
	client := served(t, func(number int, lines *bufio.Scanner, events io.Writer) {
		switch number {
		case 1:
			fmt.Fprintln(events, hello)
			<-kill
		case 2:
			<-ready
			fmt.Fprintln(events, `{"event":"failed","exit_code":69,"reason":"no store"}`)
		default:
			grants(lines, events)
		}
	}, nothing)
	close(kill)
	<-client.launch.conn.dead
	results := acquires(t, context.Background(), client)
	close(ready)
	for range cap(results) {
		if err := <-results; !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no store") {
			t.Error(err)
		}
	}
	release(t, acquire(t, client.Semaphore("exports", 1)))
}

func TestCloseWaitsForTheCommandBefore(t *testing.T) {
	kill, closing := make(chan struct{}), make(chan context.Context, 1)
	var hasGone atomic.Bool
	var started atomic.Int32
	client := served(t, func(number int, lines *bufio.Scanner, events io.Writer) {
		started.Store(int32(number))
		fmt.Fprintln(events, hello)
		if number == 1 {
			<-kill
		} else {
			lines.Scan()
		}
	}, func(number int) {
		if number == 1 {
			<-(<-closing).Done()
			hasGone.Store(true)
		}
	})
	closing <- client.closing
	close(kill)
	<-client.launch.conn.dead
	result := make(chan error)
	go func() {
		_, err := client.Semaphore("exports", 1).Acquire(context.Background())
		result <- err
	}()
	wait(t, func() bool { return waiting() == 1 || started.Load() == 2 })
	if err := client.Close(); err != nil || !hasGone.Load() {
		t.Error(err, hasGone.Load())
	}
	if err := <-result; err != ErrClosed {
		t.Error(err)
	}
}

func TestARequestThatIsMadeAgainHasWhatIsLeftOfItsTimeouts(t *testing.T) {
	first, second := make(chan string, 1), make(chan string, 1)
	var started atomic.Int32
	client := served(t, func(number int, lines *bufio.Scanner, events io.Writer) {
		started.Store(int32(number))
		fmt.Fprintln(events, hello)
		if lines.Scan() && number%2 == 1 {
			first <- lines.Text() // The command ends.
		} else if number == 2 {
			second <- lines.Text()
		}
	}, nothing)
	exports := client.Semaphore("exports", 1)
	both := exports.Also(client.Semaphore("minute", 1).With(Timeout(2*time.Hour)), client.Semaphore("now", 1).With(Timeout(0)))
	if _, err := both.Acquire(context.Background(), Timeout(time.Hour)); !errors.Is(err, ErrUnavailable) {
		t.Error(err) // The second command ends as well.
	}
	type line struct {
		Timeout float64 `json:"timeout_ms"`
		Also    []struct {
			Timeout float64 `json:"timeout_ms"`
		}
	}
	var one, other line
	if err := errors.Join(json.Unmarshal([]byte(<-first), &one), json.Unmarshal([]byte(<-second), &other)); err != nil {
		t.Fatal(err)
	}
	left := []float64{one.Timeout - other.Timeout, one.Also[0].Timeout - other.Also[0].Timeout}
	if left[0] <= 0 || left[1] <= 0 || one.Also[1].Timeout != 0 || other.Also[1].Timeout != 0 {
		t.Errorf("%+v, and then %+v", one, other)
	}
	// Nothing is left, and the command would refuse a key of a request that does not wait.
	_, err := exports.Acquire(context.Background(), Timeout(time.Nanosecond), Supersede("key"))
	if !errors.Is(err, ErrNotNow) || started.Load() != 4 {
		t.Error(err, started.Load())
	}
}

func TestAStartThatTakesTooLongIsNoDeadlineOfTheCaller(t *testing.T) {
	defer func(before time.Duration) { startTimeout = before }(startTimeout)
	startTimeout = 100 * time.Millisecond
	_, err := Connect(context.Background(), serverURL, WithProgram(script(t, "exec sleep 60")))
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no hello within 100ms") {
		t.Error(err)
	}
	assertNoGoroutine(t)
}

// Otherwise each machine would count for itself, in the default store of the command.
func TestConnectNeedsAURL(t *testing.T) {
	ctx := context.Background()
	if _, err := Connect(ctx, ""); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "no URL: pass one, or set PERMITS_URL") {
		t.Error(err)
	}
	path := t.TempDir() + "/url"
	if err := os.WriteFile(path, []byte("memory:"), 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, value := range map[string]string{"PERMITS_URL": "memory:", "PERMITS_URL_FILE": path} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			client, err := Connect(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			client.Close()
		})
	}
}

func TestFlagsAddUpAndAProgramNeedsNoName(t *testing.T) {
	defer func(before []string) { os.Args = before }(os.Args)
	os.Args = nil
	text := `echo "{\"event\":\"failed\",\"exit_code\":69,\"reason\":\"$*\"}"`
	_, err := Connect(context.Background(), serverURL, WithProgram(script(t, text)), WithFlags("--prefix", "app"), WithFlags("--store-timeout", "2s"))
	if err == nil || !strings.Contains(err.Error(), "hold --many --prefix app --store-timeout 2s") {
		t.Error(err)
	}
}
