package permits_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	permits "github.com/permits-rs/permits/bindings/go"
)

// connect uses a store in the memory of the command, so that the examples need no server.
func connect() *permits.Client {
	client, err := permits.Connect(context.Background(), "memory:")
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// All machines together run at most 4 exports at once.
func Example() {
	ctx := context.Background()
	client, err := permits.Connect(ctx, "memory:") // such as redis://127.0.0.1/
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	exports := client.Semaphore("exports", 4)

	err = exports.Do(ctx, func(ctx context.Context) error {
		fmt.Println("exporting")
		return nil
	})
	fmt.Println(err)
	// Output:
	// exporting
	// <nil>
}

// Acquire a permit and release it yourself.
func ExampleSemaphore_Acquire() {
	client := connect()
	defer client.Close()
	ctx := context.Background()

	permit, err := client.Semaphore("gpu", 8).Acquire(ctx, permits.Weight(2), permits.Lane("tenant-7"))
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)
	// The context of the permit ends if the permit is lost, so that no two holders work.
	work := permit.Context()
	fmt.Println(permit.Weight(), permit.Slot(), work.Err())
	// Output: 2 0 <nil>
}

// Limit the time in line, and find out when to come again.
func ExampleError() {
	client := connect()
	defer client.Close()
	ctx := context.Background()
	calls := client.Semaphore("calls a minute", 1)
	if err := calls.Do(ctx, func(context.Context) error { return nil }, permits.AtLeast(time.Minute)); err != nil {
		log.Fatal(err)
	}

	_, err := calls.TryAcquire(ctx)
	if errors.Is(err, permits.ErrNotNow) {
		var refused *permits.Error
		errors.As(err, &refused)
		fmt.Println("in a minute:", refused.RetryAfter > 50*time.Second)
	}
	// Output: in a minute: true
}

// Tell the loss of a permit from the end of the caller's context.
func ExampleLostError() {
	client := connect()
	defer client.Close()

	err := client.Semaphore("nightly", 1).Do(context.Background(), func(ctx context.Context) error {
		<-ctx.Done() // The work is longer than allowed.
		return ctx.Err()
	}, permits.MaxHold(200*time.Millisecond))
	var lost *permits.LostError
	fmt.Println(errors.As(err, &lost))
	// Output: true
}
