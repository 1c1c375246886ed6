package permits

import (
	"context"
	"sync"
	"testing"
)

// A cycle acquires and releases, without waiting in line.
func cycle(b *testing.B, atOnce int) {
	client, err := Connect(context.Background(), serverURL)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	semaphore := client.Semaphore(b.Name(), 100_000)
	work := make(chan struct{})
	var all sync.WaitGroup
	for range atOnce {
		all.Add(1)
		go func() {
			defer all.Done()
			for range work {
				if err := semaphore.Do(context.Background(), func(context.Context) error { return nil }); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	all.Wait()
}

func BenchmarkOneCycleAtATime(b *testing.B) { cycle(b, 1) }

func BenchmarkSixtyFourCyclesAtOnce(b *testing.B) { cycle(b, 64) }
