// Package permitsasynq limits how many tasks of asynq all workers run at once. Concurrency of asynq counts for
// each server alone.
//
//	mux := asynq.NewServeMux()
//	mux.Use(permitsasynq.Limit(client.Semaphore("exports", 4), 10*time.Second))
//	server := asynq.NewServer(redis, asynq.Config{
//		IsFailure:      permitsasynq.IsFailure,
//		RetryDelayFunc: permitsasynq.RetryDelay,
//	})
package permitsasynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	permits "github.com/permits-rs/permits/bindings/go"
)

// Limit returns a middleware whose handlers run while they hold a permit. A task waits in line for at most
// wait, in which it occupies its worker. Then it goes back to its queue, and is retried after [RetryDelay].
// With [IsFailure] this uses up none of its retries, but asynq archives a task on its last attempt, whatever the
// reason: leave a retry for it. Options may differ by task, such as the lane.
//
// If the permit is lost, the context of the task ends. When its handler has returned, the task has failed, and
// is retried. So its beginning may run beside another task: it should be idempotent.
func Limit(semaphore *permits.Semaphore, wait time.Duration, options ...func(*asynq.Task) permits.Option) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			of := []permits.Option{permits.Timeout(wait)}
			for _, option := range options {
				of = append(of, option(task))
			}
			isGranted := false
			err := semaphore.Do(ctx, func(ctx context.Context) error {
				isGranted = true
				return next.ProcessTask(ctx, task)
			}, of...)
			if err != nil && !isGranted {
				return &NotStartedError{err}
			}
			return err
		})
	}
}

// A NotStartedError says that a task has not been started, because it has no permit.
type NotStartedError struct{ reason error }

func (e *NotStartedError) Error() string { return e.reason.Error() }

// Unwrap returns the error of the acquisition.
func (e *NotStartedError) Unwrap() error { return e.reason }

// IsFailure is for the Config of a server. A task that has not been started has not failed, unless its request
// for a permit can never succeed.
func IsFailure(err error) bool {
	var notStarted *NotStartedError
	return err != nil && (!errors.As(err, &notStarted) || errors.Is(err, permits.ErrInvalid))
}

// RetryDelay is for the Config of a server. A task that has not been started is retried after the time that
// the store has named, or after 1 s if it has named none. Others are retried as asynq does by default.
func RetryDelay(retries int, err error, task *asynq.Task) time.Duration {
	var notStarted *NotStartedError
	if IsFailure(err) || !errors.As(err, &notStarted) {
		return asynq.DefaultRetryDelayFunc(retries, err, task)
	}
	if refused := new(permits.Error); errors.As(err, &refused) {
		return max(refused.RetryAfter, time.Second)
	}
	return time.Second
}
