package permits

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hangs is the time after which something hangs. It never means that something is slow.
const hangs = time.Minute

// The server of all tests that don't end one, and the path of the command.
var (
	serverURL string
	program   string
)

// TestMain starts a server, or is one of the programs that tests start.
func TestMain(m *testing.M) {
	if role := os.Getenv("PERMITS_TEST_ROLE"); role != "" {
		roles[role]()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	program = os.Getenv("PERMITS_PROGRAM")
	if program == "" {
		program = "../../target/debug/permits"
	}
	program, _ = filepath.Abs(program)
	if path, err := filepath.EvalSymlinks(program); err == nil {
		program = path
	} else {
		fmt.Fprintln(os.Stderr, "build the command: cargo build -p permits-cli:", err)
		return 1
	}
	os.Setenv("PERMITS_PROGRAM", program)
	os.Unsetenv("PERMITS_URL")
	os.Unsetenv("PERMITS_URL_FILE")
	server, err := startServer(freePort())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.kill()
	serverURL = server.url()
	code := m.Run()
	if left := children(program); code == 0 && len(left) > 0 {
		fmt.Fprintln(os.Stderr, "commands are left:", left)
		return 1
	}
	return code
}

// A server is a redis-server on a port of its own. A shell kills it when this program closes its end of the
// pipe or ends, in any way.
type server struct {
	command *exec.Cmd
	alive   io.Closer
	port    int
}

func freePort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func startServer(port int) (*server, error) {
	program := "redis-server"
	if _, err := exec.LookPath(program); err != nil {
		program = "valkey-server"
	}
	script := program + ` "$@" </dev/null & read -r _; kill -9 $!; wait`
	command := exec.Command("sh", "-c", script, "sh", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	command.Dir = os.TempDir()
	alive, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	server := &server{command: command, alive: alive, port: port}
	for end := time.Now().Add(hangs); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			conn.Close()
			return server, nil
		}
	}
	server.kill()
	return nil, fmt.Errorf("redis-server does not listen on port %d", port)
}

// url skips the pause after the start of a server, which would be for clients of before.
func (s *server) url() string { return fmt.Sprintf("redis://127.0.0.1:%d/?recovery=off", s.port) }

func (s *server) kill() {
	s.alive.Close()
	s.command.Wait()
}

// connected returns a client, and checks at the end of the test that its goroutines have ended.
func connected(t *testing.T) *Client {
	t.Helper()
	return connectTo(t, serverURL)
}

func connectTo(t *testing.T, url string, options ...ConnectOption) *Client {
	t.Helper()
	client, err := Connect(context.Background(), url, options...)
	if err != nil {
		t.Fatal(err)
	}
	closes(t, client)
	return client
}

func closes(t *testing.T, client *Client) {
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		assertNoGoroutine(t)
	})
}

// assertNoGoroutine checks that no goroutine of the package is left, apart from goroutines of tests.
func assertNoGoroutine(t *testing.T) {
	t.Helper()
	var left []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 1<<22)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for _, stack := range strings.Split(string(stacks), "\n\n") {
			if strings.Contains(stack, "bindings/go.") && !strings.Contains(stack, "testing.tRunner") && !strings.Contains(stack, "TestMain") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
}

// children returns the processes of this program that run the command.
func children(of string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		fields := strings.Fields(string(rest))
		executable, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && executable == of {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childOf returns the process of the command that has granted a permit. The name of the holder contains it.
func childOf(t *testing.T, permit *Permit) int {
	t.Helper()
	_, rest, _ := strings.Cut(permit.Holder(), ":")
	rest, _, _ = strings.Cut(rest, "/")
	pid, err := strconv.Atoi(rest)
	if err != nil {
		t.Fatalf("no process in %q", permit.Holder())
	}
	return pid
}

func send(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// A state is what `permits status` tells of a semaphore.
type state struct {
	Held    int
	Waiting int
}

func stateOf(t *testing.T, url, name string) state {
	t.Helper()
	command := exec.Command(program, "status", "--json", "--", name)
	command.Env = append(os.Environ(), "PERMITS_URL="+url)
	text, err := command.Output()
	var state state
	if parsed := json.Unmarshal(text, &state); parsed != nil {
		t.Fatalf("status: %v: %v: %s", err, parsed, text)
	}
	return state
}

// until polls a semaphore until it has the wanted state.
func until(t *testing.T, url, name string, wanted state) {
	t.Helper()
	var found state
	for end := time.Now().Add(hangs); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found = stateOf(t, url, name); found == wanted {
			return
		}
	}
	t.Fatalf("%q has %+v, not %+v", name, found, wanted)
}

// within returns what ends a context, or fails if it does not end.
func within(t *testing.T, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(hangs):
		t.Fatal("the context does not end")
		return nil
	}
}

func acquire(t *testing.T, semaphore *Semaphore, options ...Option) *Permit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	permit, err := semaphore.Acquire(ctx, options...)
	if err != nil {
		t.Fatal(err)
	}
	return permit
}

func release(t *testing.T, permit *Permit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	if err := permit.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// operate runs a verb of the command.
func operate(t *testing.T, url string, words ...string) {
	t.Helper()
	command := exec.Command(program, words...)
	command.Env = append(os.Environ(), "PERMITS_URL="+url)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", words, err, text)
	}
}

// start starts this test program as another program.
func start(t *testing.T, role string, variables ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), append(variables, "PERMITS_TEST_ROLE="+role, "PERMITS_URL="+serverURL)...)
	command.Stderr = os.Stderr
	return command
}
