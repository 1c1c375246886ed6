package permits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestThreeProcessesKeepTheLimit(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var programs []*exec.Cmd
	for range 3 {
		program := start(t, "workers", "NAME="+t.Name(), "LOG="+log)
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	for _, program := range programs {
		if err := program.Wait(); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	running, most, works := 0, 0, 0
	for _, line := range strings.Fields(string(text)) {
		if line == "+" {
			running++
			works++
		} else {
			running--
		}
		most = max(most, running)
	}
	if running != 0 || most != 5 || works != 3*34*3 {
		t.Errorf("%d works, at most %d at once, %d left", works, most, running)
	}
	until(t, serverURL, t.Name(), state{})
}

func TestACommandThatIsKilledEndsItsPermitsAndIsReplaced(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 2)
	permits := []*Permit{acquire(t, semaphore, Lease(time.Second)), acquire(t, semaphore, Lease(time.Second))}
	waiting := make(chan *Permit)
	go func() { waiting <- acquire(t, semaphore) }()
	until(t, serverURL, t.Name(), state{Held: 2, Waiting: 1})
	killed := childOf(t, permits[0])
	send(t, killed, syscall.SIGKILL)
	var lost *LostError
	for _, permit := range permits {
		if cause := within(t, permit.Context()); !errors.As(cause, &lost) {
			t.Error(cause)
		}
		if err := permit.Release(context.Background()); !errors.As(err, &lost) {
			t.Error(err)
		}
	}
	// The request that waits is granted by another command, when the leases have ended.
	other := <-waiting
	if childOf(t, other) == killed {
		t.Error(other.Holder())
	}
	release(t, other)
	// Only the first acquisition of each round starts a command.
	for range 5 {
		permit := acquire(t, semaphore)
		send(t, childOf(t, permit), syscall.SIGKILL)
		within(t, permit.Context())
		var all sync.WaitGroup
		for range 20 {
			all.Add(1)
			go func() {
				defer all.Done()
				permit, err := client.Semaphore(t.Name()+"/other", 20).Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				release(t, permit)
			}()
		}
		all.Wait()
		if running := children(program); len(running) != 1 {
			t.Errorf("%d commands", len(running))
		}
		operate(t, serverURL, "revoke", t.Name(), permit.Holder())
	}
}

func TestACommandThatIsEndedBySignalIsALoss(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 1)
	permit := acquire(t, semaphore)
	waiting := make(chan *Permit)
	go func() { waiting <- acquire(t, semaphore) }()
	until(t, serverURL, t.Name(), state{Held: 1, Waiting: 1})
	send(t, childOf(t, permit), syscall.SIGTERM)
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) || !strings.Contains(lost.Reason, "signal 15") {
		t.Error(cause)
	}
	// The request that waits is made again, of another command.
	release(t, <-waiting)
}

func TestAServerThatIsKilledIsALossAtTheEndOfTheLease(t *testing.T) {
	port := freePort()
	server, err := startServer(port)
	if err != nil {
		t.Fatal(err)
	}
	client := connectTo(t, server.url(), WithStderr(nil))
	semaphore := client.Semaphore(t.Name(), 1)
	permit := acquire(t, semaphore, Lease(time.Second))
	server.kill()
	killed := time.Now()
	var lost *LostError
	if cause := within(t, permit.Context()); !errors.As(cause, &lost) {
		t.Error(cause)
	}
	if took := time.Since(killed); took > 10*time.Second {
		t.Error(took)
	}
	if _, err := semaphore.Acquire(context.Background(), Timeout(time.Second)); err == nil {
		t.Error("there is no server")
	}
	if server, err = startServer(port); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, semaphore))
	client.Close()
	server.kill()
}

// lines starts a program, and returns a function that reads a line of its output.
func lines(t *testing.T, command *exec.Cmd) func() string {
	t.Helper()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(out)
	return func() string {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
}

// The leases are an hour long, so only a release can free the unit.
func TestAProgramThatEndsReleases(t *testing.T) {
	client := connected(t)
	killed := func(role string) {
		name := t.Name() + "/" + role
		program := start(t, role, "NAME="+name)
		line := lines(t, program)()
		if found := stateOf(t, serverURL, name); found.Held != 1 {
			t.Errorf("%+v", found)
		}
		program.Process.Kill()
		program.Wait()
		release(t, acquire(t, client.Semaphore(name, 1)))
		if pid, err := strconv.Atoi(line); err == nil {
			// The process that the program had started outlives it, and has no pipe of it.
			send(t, pid, syscall.SIGKILL)
		}
	}
	killed("holder")
	killed("inherits")
	name := t.Name() + "/leaves"
	program := start(t, "leaves", "NAME="+name)
	if err := program.Run(); err != nil {
		t.Error(err)
	}
	release(t, acquire(t, client.Semaphore(name, 1)))
}

// A program that is stopped reads no events, but its permits are renewed nevertheless.
func TestASlowReaderLosesNothing(t *testing.T) {
	program := start(t, "stopped", "NAME="+t.Name())
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read := lines(t, program)
	read()
	send(t, program.Process.Pid, syscall.SIGSTOP)
	time.Sleep(4 * time.Second)
	if found := stateOf(t, serverURL, t.Name()); found.Held != 1000 {
		t.Errorf("%+v", found)
	}
	send(t, program.Process.Pid, syscall.SIGCONT)
	fmt.Fprintln(in)
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
	until(t, serverURL, t.Name(), state{})
}

func TestTenThousandPermits(t *testing.T) {
	client := connected(t)
	semaphore := client.Semaphore(t.Name(), 10_000)
	permits := make([]*Permit, 10_000)
	each := func(do func(number int)) {
		var all sync.WaitGroup
		for number := range permits {
			all.Add(1)
			go func() {
				defer all.Done()
				do(number)
			}()
		}
		all.Wait()
	}
	began := time.Now()
	each(func(number int) { permits[number] = acquire(t, semaphore) })
	if t.Failed() {
		return
	}
	t.Logf("acquired in %v", time.Since(began))
	slots := map[int]bool{}
	for _, permit := range permits {
		slots[permit.Slot()] = true
	}
	if found := stateOf(t, serverURL, t.Name()); found.Held != 10_000 || len(slots) != 10_000 {
		t.Errorf("%+v, %d slots", found, len(slots))
	}
	began = time.Now()
	each(func(number int) { release(t, permits[number]) })
	t.Logf("released in %v", time.Since(began))
	if found := stateOf(t, serverURL, t.Name()); found != (state{}) {
		t.Errorf("%+v", found)
	}
}
