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

// The command itself gives a store 10 seconds. Tests set a shorter time.
var startTimeout = 30 * time.Second

const (
	closeTimeout = 10 * time.Second // A little longer than the command needs for its releases.
	errorTimeout = time.Second      // For others that the command has started, and that keep its standard error.
)

// A Client has one connection to a store, for any number of goroutines. Close it.
type Client struct {
	dial    func(ctx context.Context) (*conn, error) // Starts a command, or connects to one.
	closing context.Context                          // Ended by close.
	close   context.CancelFunc
	ids     atomic.Int64
	mu      sync.Mutex
	launch  *launch // The last one.
}

// A launch is one start of a command. It belongs to the client: it goes on when its callers leave.
type launch struct {
	done chan struct{} // Closed when conn and err are set.
	gone chan struct{} // Closed when the command and its goroutines have ended.
	conn *conn
	err  error
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
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

// WithFlags adds flags that all verbs of the command have, such as "--prefix", "app" or "--store-timeout",
// "2s". Options of a request are refused: use [Option], and "?recovery=off" in the URL.
func WithFlags(flags ...string) ConnectOption {
	return func(s *settings) { s.flags = append(s.flags, flags...) }
}

// WithStderr sets where warnings of the command are written, in place of the standard error of the
// program. Writing must not block.
func WithStderr(w io.Writer) ConnectOption { return func(s *settings) { s.stderr = w } }

// Connect starts the command, and returns when it has reached the store at url, such as redis://127.0.0.1/.
// If url is empty, the variable PERMITS_URL has it, or the file of PERMITS_URL_FILE. If these are empty, too,
// the error is [ErrInvalid]: write local: if you want a line for each machine. The context covers only
// Connect itself. The error is also [ErrUnavailable], or the error of the context.
func Connect(ctx context.Context, url string, options ...ConnectOption) (*Client, error) {
	if cmp.Or(url, os.Getenv("PERMITS_URL"), os.Getenv("PERMITS_URL_FILE")) == "" {
		return nil, invalid("", "no URL: pass one, or set PERMITS_URL")
	}
	settings := settings{program: os.Getenv("PERMITS_PROGRAM"), label: os.Getenv("PERMITS_LABEL"), stderr: os.Stderr}
	if settings.label == "" && len(os.Args) > 0 {
		settings.label = filepath.Base(os.Args[0])
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
		return nil, invalid("", fmt.Sprintf("the address %q is not of the form unix:PATH", address))
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
	none := make(chan struct{})
	close(none)
	client := &Client{dial: dial, launch: &launch{done: none, gone: none, err: ErrClosed}}
	client.closing, client.close = context.WithCancel(context.Background())
	// Nobody else waits for this start, so it ends with the context.
	stop := context.AfterFunc(ctx, client.close)
	_, err := client.connection(ctx)
	if !stop() {
		err = ended(ctx, "starting the command")
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// connection returns the command that runs. If it has ended, one caller starts another, and all wait for it.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	if c.closing.Err() != nil {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	last := c.launch
	if isClosed(last.done) && (last.err != nil || isClosed(last.conn.dead)) {
		c.launch = &launch{done: make(chan struct{}), gone: make(chan struct{})}
		go c.run(c.launch, last.gone)
		last = c.launch
	}
	c.mu.Unlock()
	select {
	case <-last.done:
		return last.conn, last.err
	case <-ctx.Done():
		return nil, ended(ctx, "starting the command")
	}
}

// run starts a command when the one before has gone, and speaks with it until its end.
func (c *Client) run(l *launch, before <-chan struct{}) {
	defer func() {
		<-before
		close(l.gone)
	}()
	ctx, cancel := context.WithTimeout(c.closing, startTimeout)
	defer cancel()
	var conn *conn
	err := error(ErrClosed)
	select {
	case <-before:
		conn, err = c.dial(ctx)
	case <-ctx.Done():
	}
	if err == nil {
		stop := context.AfterFunc(ctx, func() { conn.stop() })
		err = conn.hello()
		stop()
	}
	switch {
	case c.closing.Err() != nil:
		err = ErrClosed
	case ctx.Err() != nil:
		err = unavailable(fmt.Sprintf("no hello within %v", startTimeout))
	}
	l.conn, l.err = conn, err
	close(l.done)
	if err == nil {
		conn.run()
	} else if conn != nil {
		conn.stop()
	}
}

// permit makes a request for a permit.
func (c *Client) permit(ctx context.Context, semaphore string, request fields) (*Permit, error) {
	call, _, err := c.call(ctx, semaphore, request)
	if err != nil {
		return nil, err
	}
	return &Permit{call: call, grant: call.grant}, nil
}

// call makes a request, and returns its first event. If ctx ends first, what is granted is released.
func (c *Client) call(ctx context.Context, semaphore string, request fields) (*call, event, error) {
	id, began := c.ids.Add(1), time.Time{}
	request["id"] = id
	for isRetry := false; ; isRetry = true {
		conn, err := c.connection(ctx)
		if err != nil {
			return nil, event{}, err
		}
		if !isRetry {
			began = time.Now()
		} else if !request.shorten(time.Since(began)) {
			return nil, event{}, &Error{Semaphore: semaphore, Reason: "the command has ended, and so has the time to wait", kind: ErrNotNow}
		}
		line, err := request.line(semaphore)
		if err != nil {
			return nil, event{}, err
		}
		atLeast, _ := request["at_least_ms"].(float64)
		isAdopted := request["adopt"] != nil
		call := &call{
			id: id, semaphore: semaphore, isPermit: isAdopted || request["acquire"] != nil, counts: isAdopted || atLeast > 0,
			conn: conn, reply: make(chan event, 1), done: make(chan struct{}), turn: make(chan struct{}, 1),
		}
		call.ctx, call.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		answer, err := call.answer(ctx, line)
		// The command may have been dying when the call began, so try its successor once. A change may have
		// been made.
		end, hasDied := err.(died)
		if !hasDied || isRetry || request["change"] != nil {
			if hasDied {
				err = unavailable(end.Error())
			}
			return call, answer, err
		}
		select {
		case <-conn.dead:
		case <-ctx.Done():
			return nil, event{}, call.left(ctx)
		}
	}
}

// Close releases all permits, ends all waits, and ends the command. Permits that are still held are
// lost: their contexts end. It takes no longer than 10 seconds, and no goroutine is left afterwards. Whether
// the store has confirmed a release, only [Permit.Release] says.
func (c *Client) Close() error {
	c.mu.Lock()
	c.close()
	last := c.launch
	c.mu.Unlock()
	if <-last.done; last.err == nil {
		last.conn.hangUp(ErrClosed)
	}
	select {
	case <-last.gone:
		return nil
	case <-time.After(closeTimeout):
		if last.conn != nil {
			last.conn.stop()
		}
		<-last.gone
		return unavailable("the command did not end in time: what it has of this program ends with the lease")
	}
}

// start starts the command.
func (s *settings) start(url string) (*conn, error) {
	program, err := exec.LookPath(cmp.Or(s.program, "permits"))
	if err != nil {
		return nil, unavailable(err.Error() + ": install the command, as https://github.com/permits-rs/permits says, or set PERMITS_PROGRAM to its path")
	}
	command := exec.Command(program, append([]string{"hold", "--many"}, s.flags...)...)
	command.Stderr, command.WaitDelay = s.stderr, errorTimeout
	// The command refuses a second URL, and one that is empty.
	isOther := func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		return (name == "PERMITS_URL" || name == "PERMITS_URL_FILE") && (url != "" || value == "")
	}
	command.Env = append(slices.DeleteFunc(os.Environ(), isOther), "PERMITS_LABEL="+s.label)
	if url != "" {
		// Don't pass the url as an argument: every user sees the arguments of a process, and it may have a
		// password.
		command.Env = append(command.Env, "PERMITS_URL="+url)
	}
	// Other programs that this one starts do not inherit these ends of the pipes: os/exec sees to that.
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
