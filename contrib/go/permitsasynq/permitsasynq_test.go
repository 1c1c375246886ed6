package permitsasynq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	permits "github.com/permits-rs/permits/bindings/go"
)

var (
	address string
	client  *permits.Client
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts a server, which a shell kills when this program ends in any way.
func run(m *testing.M) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	address = listener.Addr().String()
	listener.Close()
	_, port, _ := net.SplitHostPort(address)
	script := `"$(command -v redis-server || command -v valkey-server)" --port "$1" --bind 127.0.0.1 --save "" </dev/null >/dev/null & read -r _; kill -9 $!; wait`
	command := exec.Command("sh", "-c", script, "sh", port)
	alive, err := command.StdinPipe()
	if err != nil {
		panic(err)
	}
	if err := command.Start(); err != nil {
		panic(err)
	}
	defer command.Wait()
	defer alive.Close()
	for range 10_000 {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if client, err = permits.Connect(context.Background(), "redis://"+address+"/?recovery=off"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer client.Close()
	return m.Run()
}

// serve starts a worker with a queue of the test.
func serve(t *testing.T, semaphore *permits.Semaphore, wait time.Duration, handler asynq.HandlerFunc) {
	t.Helper()
	mux := asynq.NewServeMux()
	mux.Use(Limit(semaphore, wait, func(task *asynq.Task) permits.Option { return permits.Lane(task.Type()) }))
	mux.HandleFunc("export", handler)
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: address}, asynq.Config{
		Concurrency: 8, Queues: map[string]int{t.Name(): 1}, IsFailure: IsFailure, RetryDelayFunc: RetryDelay,
		LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 50 * time.Millisecond, TaskCheckInterval: 20 * time.Millisecond,
	})
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
}

func enqueue(t *testing.T, number, retries int) {
	t.Helper()
	queue := asynq.NewClient(asynq.RedisClientOpt{Addr: address})
	defer queue.Close()
	for range number {
		task := asynq.NewTask("export", nil, asynq.Queue(t.Name()), asynq.MaxRetry(retries))
		if _, err := queue.Enqueue(task); err != nil {
			t.Fatal(err)
		}
	}
}

// until polls the queue until its numbers are as wanted. If the time is up, something hangs.
func until(t *testing.T, wanted string, are func(*asynq.QueueInfo) bool) {
	t.Helper()
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: address})
	defer inspector.Close()
	var info *asynq.QueueInfo
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if info, err = inspector.GetQueueInfo(t.Name()); err == nil && are(info) {
			return
		}
	}
	t.Fatalf("%s: %+v", wanted, info)
}

func isEmpty(info *asynq.QueueInfo) bool { return info.Size == 0 }

// Two workers with 8 goroutines each. A task waits for 10 ms, so most tasks go back to the queue, some of
// them more often than they may fail.
func TestAtMostAsManyTasksAtOnceAsThereAreUnits(t *testing.T) {
	var now, most, done atomic.Int64
	handler := func(ctx context.Context, task *asynq.Task) error {
		defer now.Add(-1)
		for here := now.Add(1); ; {
			if seen := most.Load(); here <= seen || most.CompareAndSwap(seen, here) {
				break
			}
		}
		time.Sleep(100 * time.Millisecond)
		done.Add(1)
		return nil
	}
	semaphore := client.Semaphore(t.Name(), 3)
	enqueue(t, 24, 1)
	serve(t, semaphore, 10*time.Millisecond, handler)
	serve(t, semaphore, 10*time.Millisecond, handler)
	until(t, "all tasks are done", isEmpty)
	if most.Load() != 3 || done.Load() != 24 {
		t.Errorf("%d at once, %d done", most.Load(), done.Load())
	}
}

func TestALossFailsTheTask(t *testing.T) {
	var runs atomic.Int64
	var lost atomic.Value
	semaphore := client.Semaphore(t.Name(), 1).With(permits.Holder("me"))
	enqueue(t, 1, 0)
	serve(t, semaphore, time.Minute, func(ctx context.Context, task *asynq.Task) error {
		runs.Add(1)
		// The loss ends the context, maybe before this returns.
		if _, err := semaphore.Change(context.Background(), permits.Revoke{Holder: "me"}); err != nil {
			return err
		}
		<-ctx.Done()
		lost.Store(context.Cause(ctx))
		return nil
	})
	until(t, "the task has failed", func(info *asynq.QueueInfo) bool { return info.Archived == 1 })
	var loss *permits.LostError
	if err, _ := lost.Load().(error); runs.Load() != 1 || !errors.As(err, &loss) {
		t.Errorf("%d runs, %v", runs.Load(), lost.Load())
	}
}

func TestWhatWasNotStartedIsNoFailureUnlessItNeverCanBe(t *testing.T) {
	ctx := context.Background()
	semaphore := client.Semaphore(t.Name(), 1)
	task := asynq.NewTask("export", nil)
	failed := errors.New("failed")
	handled := func(semaphore *permits.Semaphore) error {
		return Limit(semaphore, 0)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return failed })).ProcessTask(ctx, task)
	}
	if err := handled(semaphore.With(permits.AtLeast(time.Hour))); err != failed || !IsFailure(err) || RetryDelay(1, err, task) <= 0 {
		t.Error(err)
	}
	// The unit cools for an hour.
	err := handled(semaphore)
	if !errors.Is(err, permits.ErrNotNow) || IsFailure(err) {
		t.Error(err)
	}
	// The end of the hour is rounded up to a millisecond, and the time of the refusal down.
	if delay := RetryDelay(1, err, task); delay < 50*time.Minute || delay > time.Hour+time.Millisecond {
		t.Error(delay)
	}
	if err := handled(semaphore.With(permits.Weight(2))); !errors.Is(err, permits.ErrInvalid) || !IsFailure(err) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = Limit(semaphore, 0)(nil).ProcessTask(ended, task)
	if !errors.Is(err, context.Canceled) || IsFailure(err) || RetryDelay(1, err, task) != time.Second {
		t.Error(err)
	}
	if IsFailure(nil) {
		t.Error("success is no failure")
	}
}
