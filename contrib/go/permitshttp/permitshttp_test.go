package permitshttp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	permits "github.com/permits-rs/permits/bindings/go"
)

var client *permits.Client

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	url, stop := startRedis()
	defer stop()
	connected, err := permits.Connect(context.Background(), url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer connected.Close()
	client = connected
	return m.Run()
}

// startRedis starts a server, which a shell kills when this program ends in any way.
func startRedis() (url string, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	address := listener.Addr().String()
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
	for range 10_000 {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "redis://" + address + "/?recovery=off", func() {
		alive.Close()
		command.Wait()
	}
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func serve(t *testing.T, semaphore *permits.Semaphore, wait time.Duration, handler http.HandlerFunc, options ...func(*http.Request) permits.Option) string {
	t.Helper()
	server := httptest.NewServer(Limit(semaphore, wait, options...)(handler))
	t.Cleanup(server.Close)
	return server.URL
}

func retryAfter(t *testing.T, response *http.Response, least, most int) {
	t.Helper()
	after := response.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err != nil || seconds < least || seconds > most {
		t.Errorf("Retry-After is %q, not %d to %d", after, least, most)
	}
}

func free(t *testing.T, semaphore *permits.Semaphore) {
	t.Helper()
	for range 6000 {
		state, err := semaphore.Inspect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if state.Held == 0 && state.Waiting == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it is not free")
}

// Two servers, as two replicas.
func TestAtMostAsManyRequestsAtOnceAsThereAreUnits(t *testing.T) {
	var now, most, served atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		defer now.Add(-1)
		for here := now.Add(1); ; {
			if seen := most.Load(); here <= seen || most.CompareAndSwap(seen, here) {
				break
			}
		}
		time.Sleep(20 * time.Millisecond)
		served.Add(1)
	}
	semaphore := client.Semaphore(t.Name(), 3)
	urls := []string{serve(t, semaphore, time.Minute, handler), serve(t, semaphore, time.Minute, handler)}
	var all sync.WaitGroup
	for number := range 30 {
		all.Add(1)
		go func() {
			defer all.Done()
			response, err := http.Get(urls[number%2])
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Error(response.Status)
			}
		}()
	}
	all.Wait()
	if most.Load() != 3 || served.Load() != 30 {
		t.Errorf("%d at once, %d served", most.Load(), served.Load())
	}
	free(t, semaphore)
}

func TestARefusalSaysWhenToComeAgain(t *testing.T) {
	ctx := context.Background()
	handler := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "done") }
	semaphore := client.Semaphore(t.Name(), 1)
	permit, err := semaphore.Acquire(ctx, permits.Holder("secret-host"))
	if err != nil {
		t.Fatal(err)
	}
	response, body := get(t, serve(t, semaphore, 1100*time.Millisecond, handler))
	if response.StatusCode != http.StatusTooManyRequests || strings.Contains(body, "secret-host") {
		t.Error(response.Status, body)
	}
	retryAfter(t, response, 2, 2)
	response, _ = get(t, serve(t, semaphore, 0, handler))
	retryAfter(t, response, 1, 1)
	if err := permit.Release(ctx); err != nil {
		t.Fatal(err)
	}

	if _, err := semaphore.Change(ctx, permits.Pause{Time: time.Hour}); err != nil {
		t.Fatal(err)
	}
	response, _ = get(t, serve(t, semaphore, 0, handler))
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Error(response.Status)
	}
	retryAfter(t, response, 3000, 3600)
	if _, err := semaphore.Change(ctx, permits.Resume{}); err != nil {
		t.Fatal(err)
	}

	wrong := func(*http.Request) permits.Option { return permits.Weight(2) }
	if response, _ = get(t, serve(t, semaphore, 0, handler, wrong)); response.StatusCode != http.StatusInternalServerError {
		t.Error(response.Status)
	}
	if response, body = get(t, serve(t, semaphore, 0, handler)); response.StatusCode != http.StatusOK || body != "done" {
		t.Error(response.Status, body)
	}
	free(t, semaphore)
}

func TestAContextThatEndsTheWaitIsServiceUnavailable(t *testing.T) {
	ctx := context.Background()
	semaphore := client.Semaphore(t.Name(), 1)
	permit, err := semaphore.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	limited := Limit(semaphore, time.Hour)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("it has no permit")
	}))
	hasty := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if r.URL.Path == "/deadline" {
			ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
		} else {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		limited.ServeHTTP(w, r.WithContext(ctx))
	})
	server := httptest.NewServer(hasty)
	t.Cleanup(server.Close)
	for _, path := range []string{"/deadline", "/cancelled"} {
		if response, _ := get(t, server.URL+path); response.StatusCode != http.StatusServiceUnavailable {
			t.Error(path, response.Status)
		}
	}
	if err := permit.Release(ctx); err != nil {
		t.Fatal(err)
	}
	free(t, semaphore)
}

func TestAStoreThatFailsIsServiceUnavailable(t *testing.T) {
	url, stop := startRedis()
	other, err := permits.Connect(context.Background(), url, permits.WithFlags("--store-timeout", "300ms"), permits.WithStderr(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	stop()
	response, _ := get(t, serve(t, other.Semaphore(t.Name(), 1), 0, func(http.ResponseWriter, *http.Request) {}))
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Error(response.Status)
	}
}

func TestAClientThatGoesAwayLeavesTheLine(t *testing.T) {
	semaphore := client.Semaphore(t.Name(), 1)
	permit, err := semaphore.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, semaphore, time.Hour, func(http.ResponseWriter, *http.Request) { t.Error("it is handled") })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		_, err := http.DefaultClient.Do(request)
		done <- err
	}()
	waiting := func(number int) {
		for range 6000 {
			if state, err := semaphore.Inspect(context.Background()); err == nil && state.Waiting == number {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d do not wait", number)
	}
	waiting(1)
	cancel()
	if err := <-done; err == nil {
		t.Error("it has a reply")
	}
	waiting(0)
	permit.Release(context.Background())
}

func TestALossEndsTheRequest(t *testing.T) {
	semaphore := client.Semaphore(t.Name(), 1).With(permits.Holder("me"))
	url := serve(t, semaphore, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if _, err := semaphore.Change(context.Background(), permits.Revoke{Holder: "me"}); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		fmt.Fprint(w, "done")
	})
	if response, err := http.Get(url); err == nil {
		t.Error(response.Status)
	}
	free(t, semaphore)
}

func TestARequestMayHaveALane(t *testing.T) {
	lane := func(r *http.Request) permits.Option { return permits.Lane(r.Header.Get("X-Tenant")) }
	semaphore := client.Semaphore(t.Name(), 1)
	url := serve(t, semaphore, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		state, err := semaphore.Inspect(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(w, *state.Holders[0].Lane)
	}, lane)
	request, _ := http.NewRequest(http.MethodGet, url, nil)
	request.Header.Set("X-Tenant", "tenant-7")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "tenant-7" {
		t.Errorf("%s", body)
	}
}
