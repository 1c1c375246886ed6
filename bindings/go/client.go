package permits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	startTimeout = 30 * time.Second // The command itself gives a store 10 seconds.
	closeTimeout = 10 * time.Second // A little longer than the command needs for its releases.
	errorTimeout = time.Second      // For others that the command has started, and that keep its standard error.
)

// A Client has one connection to a store, for any number of goroutines. Close it.
type Client struct {
	dial     func(ctx context.Context) (*conn, error) // Starts a command, or connects to one.
	turn     chan struct{}                            // Has a value while no goroutine does so.
	closing  context.Context                          // Ended by close, at the latest when the client is closed.
	close    context.CancelFunc
	ids      atomic.Int64
	mu       sync.Mutex
	conn     *conn
	isClosed bool
}

// A ConnectOption is an option of [Connect].
type ConnectOption func(*settings)

type settings struct {
	program, label string
	flags          []string
	stderr         io.Writer
}

// WithProgram sets the path of the command, in place of PERMITS_PROGRAM and of the command in PATH.
func WithProgram(path string) ConnectOption { return func(s *settings) { s.program = path } }

// WithLabel sets the text that operators see beside holders whose request has no [Label], in place of
// PERMITS_LABEL and of the name of the program.
func WithLabel(text string) ConnectOption { return func(s *settings) { s.label = text } }

// WithFlags adds flags of "permits hold", such as "--prefix", "app" or "--store-timeout", "2s".
func WithFlags(flags ...string) ConnectOption { return func(s *settings) { s.flags = flags } }

// WithStderr sets where warnings of the command are written, in place of the standard error of the
// program. Writing must not block.
func WithStderr(w io.Writer) ConnectOption { return func(s *settings) { s.stderr = w } }

// Connect starts the command, and returns when it has reached the store at url, such as redis://127.0.0.1/.
// If url is empty, the variable PERMITS_URL has it. The context covers only Connect itself. The error is
// [ErrUnavailable] or [ErrInvalid], or the error of the context.
func Connect(ctx context.Context, url string, options ...ConnectOption) (*Client, error) {
	settings := settings{
		program: os.Getenv("PERMITS_PROGRAM"),
		label:   cmp.Or(os.Getenv("PERMITS_LABEL"), filepath.Base(os.Args[0])),
		stderr:  os.Stderr,
	}
	for _, option := range options {
		option(&settings)
	}
	return connect(ctx, func(ctx context.Context) (*conn, error) { return settings.start(url) })
}

// Attach connects to a command that serves a Unix socket, such as "permits hold --listen
// unix:/run/permits/socket": the address is unix:/run/permits/socket. Several programs may share it.
func Attach(ctx context.Context, address string) (*Client, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return nil, &Error{Reason: fmt.Sprintf("the address %q is not of the form unix:PATH", address), kind: ErrInvalid}
	}
	return connect(ctx, func(ctx context.Context) (*conn, error) {
		socket, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, unavailable("no command listens: " + err.Error())
		}
		end := func() string {
			socket.Close()
			return "it has closed the connection"
		}
		return newConn(socket, socket, socket.(*net.UnixConn).CloseWrite, end), nil
	})
}

func connect(ctx context.Context, dial func(ctx context.Context) (*conn, error)) (*Client, error) {
	client := &Client{dial: dial, turn: make(chan struct{}, 1)}
	client.turn <- struct{}{}
	client.closing, client.close = context.WithCancel(context.Background())
	if _, err := client.connection(ctx); err != nil {
		client.close()
		return nil, err
	}
	return client, nil
}

// connection returns the command that runs, or starts another one if it has ended.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	if conn, err := c.present(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-c.closing.Done():
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ended(ctx, "starting the command")
	}
	// Another goroutine may have started a command meanwhile.
	if conn, err := c.present(); conn != nil || err != nil {
		return conn, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, unavailable("the command does not say hello: it may be too old"))
	defer cancel()
	defer context.AfterFunc(c.closing, cancel)()
	conn, err := c.dial(ctx)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { conn.stop() })
		err = conn.hello()
		stop()
	}
	if ctx.Err() != nil {
		err = ended(ctx, "starting the command")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		err = ErrClosed
	}
	if err != nil {
		if conn != nil {
			conn.stop()
		}
		return nil, err
	}
	c.conn = conn
	go conn.run()
	return conn, nil
}

// present returns the command that runs, or nil.
func (c *Client) present() (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, ErrClosed
	}
	if c.conn != nil {
		select {
		case <-c.conn.dead:
		default:
			return c.conn, nil
		}
	}
	return nil, nil
}

// permit makes a request for a permit.
func (c *Client) permit(ctx context.Context, semaphore string, line fields) (*Permit, error) {
	call, grant, err := c.call(ctx, semaphore, line, true)
	if err != nil {
		return nil, err
	}
	return call.permit(ctx, grant), nil
}

// call makes a request, and returns its first event. If ctx ends first, what is granted is released.
func (c *Client) call(ctx context.Context, semaphore string, request fields, mayRepeat bool) (*call, *event, error) {
	id, began := c.ids.Add(1), time.Now()
	request["id"] = id
	for isRetry := false; ; isRetry = true {
		if timeout, isSet := request["timeout_ms"].(float64); isSet && isRetry {
			request["timeout_ms"] = max(0, timeout-milliseconds(time.Since(began)))
		}
		line, err := request.line(semaphore)
		if err != nil {
			return nil, nil, err
		}
		conn, err := c.connection(ctx)
		if err != nil {
			return nil, nil, err
		}
		call := &call{id: id, semaphore: semaphore, conn: conn, reply: make(chan *event, 1), done: make(chan struct{})}
		if call.waiting = "waiting for the store"; semaphore != "" {
			call.waiting = fmt.Sprintf("waiting for %q", semaphore)
		}
		atLeast, _ := request["at_least_ms"].(float64)
		_, isAdopted := request["adopt"]
		call.counts = atLeast > 0 || isAdopted
		answer, err := call.answer(ctx, line)
		// The command may have been dying when the call began, so try its successor once.
		if err != errDied || isRetry || !mayRepeat {
			return call, answer, err
		}
		select {
		case <-conn.dead:
		case <-ctx.Done():
			return nil, nil, ended(ctx, call.waiting)
		}
	}
}

// Close releases all permits, ends all waits, and ends the command. Permits that are still held are
// lost: their contexts end. It takes no longer than 10 seconds, and no goroutine is left afterwards.
func (c *Client) Close() error {
	c.mu.Lock()
	conn, isClosed := c.conn, c.isClosed
	c.isClosed = true
	c.mu.Unlock()
	// End the start of a command, and wait for that.
	c.close()
	<-c.turn
	c.turn <- struct{}{}
	if conn == nil {
		return nil
	}
	if !isClosed {
		conn.hangUp()
	}
	select {
	case <-conn.gone:
		return nil
	case <-time.After(closeTimeout):
		conn.stop()
		<-conn.gone
		return unavailable("the command did not end in time: what it has of this program ends with the lease")
	}
}

// start starts the command.
func (s *settings) start(url string) (*conn, error) {
	program, err := exec.LookPath(cmp.Or(s.program, "permits"))
	if err != nil {
		return nil, unavailable(err.Error() + ": install the command (cargo install permits-cli), or set PERMITS_PROGRAM to its path")
	}
	command := exec.Command(program, append([]string{"hold", "--many"}, s.flags...)...)
	command.Stderr, command.WaitDelay = s.stderr, errorTimeout
	command.Env = append(os.Environ(), "PERMITS_LABEL="+s.label)
	if url != "" {
		// Don't pass the url as an argument: every user sees the arguments of a process, and it may have a
		// password. The command refuses a second URL.
		isOther := func(variable string) bool { return strings.HasPrefix(variable, "PERMITS_URL_FILE=") }
		command.Env = append(slices.DeleteFunc(command.Env, isOther), "PERMITS_URL="+url)
	}
	// Other programs that this one starts do not inherit the ends of the pipes that stay here: os/exec sees to that.
	in, inErr := command.StdinPipe()
	out, outErr := command.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, unavailable(err.Error())
	}
	if err := command.Start(); err != nil {
		return nil, unavailable("the command cannot be started: " + err.Error())
	}
	end := sync.OnceValue(func() string {
		// The command has ended, or is no longer of use: without its output nobody would learn of a loss.
		command.Process.Kill()
		command.Wait()
		return command.ProcessState.String() + ", and its standard error says why"
	})
	return newConn(in, out, in.Close, end), nil
}
