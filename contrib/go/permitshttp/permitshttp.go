// Package permitshttp limits how many HTTP requests all replicas of a service handle at once.
//
//	exports := client.Semaphore("exports", 4)
//	mux.Handle("/export/", permitshttp.Limit(exports, 2*time.Second)(handler))
package permitshttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	permits "github.com/permits-rs/permits/bindings/go"
)

// Limit returns a middleware whose handlers run while they hold a permit. A request waits in line for at most
// wait, and leaves the line when its client goes away. Options may differ by request, such as the lane. With
// a function of yours that returns the tenant that you have authenticated, which must not be empty:
//
//	lane := func(r *http.Request) permits.Option { return permits.Lane(tenantOf(r)) }
//	permitshttp.Limit(exports, 2*time.Second, lane)
//
// The reply to a request that gets no permit is 429, with Retry-After. In a pause, or if the line is closed
// or the store fails, it is 503, and if the context of the request ends the wait. A request that can never
// have a permit is a mistake of the program, and the reply is 500.
//
// If the permit is lost, the context of the request ends, and the connection is closed when the handler has
// returned, so that its client takes no reply for complete. The permit is released when the handler returns.
func Limit(semaphore *permits.Semaphore, wait time.Duration, options ...func(*http.Request) permits.Option) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			of := []permits.Option{permits.Timeout(wait)}
			for _, option := range options {
				of = append(of, option(r))
			}
			isGranted := false
			err := semaphore.Do(r.Context(), func(ctx context.Context) error {
				isGranted = true
				next.ServeHTTP(w, r.WithContext(ctx))
				return nil
			}, of...)
			switch {
			case err == nil:
			case isGranted: // It is lost.
				panic(http.ErrAbortHandler)
			default:
				refuse(w, r, err, wait)
			}
		})
	}
}

// refuse writes the reply to a request without a permit.
func refuse(w http.ResponseWriter, r *http.Request, err error, wait time.Duration) {
	var refused *permits.Error
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, permits.ErrNotNow) && errors.As(err, &refused):
		if !refused.StandsStill {
			status = http.StatusTooManyRequests
		}
		again := max(refused.RetryAfter, time.Second)
		if refused.RetryAfter == 0 {
			again = max(wait, time.Second)
		}
		w.Header().Set("Retry-After", strconv.Itoa(int((again+time.Second-1)/time.Second)))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	case errors.Is(err, permits.ErrInvalid):
		status = http.StatusInternalServerError
		slog.ErrorContext(r.Context(), "the request for a permit is wrong", "error", err)
	default:
		slog.ErrorContext(r.Context(), "there is no permit", "error", err)
	}
	// The error names who holds the units, which is not for the client.
	http.Error(w, http.StatusText(status), status)
}
