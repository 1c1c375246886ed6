package permits

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// roles are the programs that tests start, by name.
var roles = map[string]func(){
	"workers":  workers,
	"holder":   holder,
	"leaves":   leaves,
	"stopped":  stopped,
	"inherits": inherits,
}

// must ends a program that cannot do its work.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func connectRole() *Client { return must(Connect(context.Background(), "")) }

// workers writes a line to the log at the beginning and at the end of each work.
func workers() {
	client := connectRole()
	semaphore := client.Semaphore(os.Getenv("NAME"), 5)
	log := must(os.OpenFile(os.Getenv("LOG"), os.O_APPEND|os.O_WRONLY, 0))
	var all sync.WaitGroup
	for range 34 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 3 {
				err := semaphore.Do(context.Background(), func(context.Context) error {
					must(log.WriteString("+\n"))
					time.Sleep(2 * time.Millisecond)
					must(log.WriteString("-\n"))
					return nil
				})
				must(0, err)
			}
		}()
	}
	all.Wait()
	must(0, client.Close())
}

// holder holds until it is killed.
func holder() {
	must(connectRole().Semaphore(os.Getenv("NAME"), 1).Acquire(context.Background(), Lease(time.Hour)))
	fmt.Println("held")
	select {}
}

// leaves ends without a release.
func leaves() {
	must(connectRole().Semaphore(os.Getenv("NAME"), 1).Acquire(context.Background(), Lease(time.Hour)))
	os.Exit(0)
}

// inherits starts a program that outlives it, and holds until it is killed.
func inherits() {
	client := connectRole()
	must(client.Semaphore(os.Getenv("NAME"), 1).Acquire(context.Background(), Lease(time.Hour)))
	other := exec.Command("sleep", "300")
	must(0, other.Start())
	fmt.Println(other.Process.Pid)
	select {}
}

// stopped holds many permits with a short lease, and says whether it has lost one.
func stopped() {
	client := connectRole()
	semaphore := client.Semaphore(os.Getenv("NAME"), 1000)
	var all sync.WaitGroup
	permits := make([]*Permit, 1000)
	for number := range permits {
		all.Add(1)
		go func() {
			defer all.Done()
			permits[number] = must(semaphore.Acquire(context.Background(), Lease(3*time.Second)))
		}()
	}
	all.Wait()
	fmt.Println("held")
	// Wait until the test says that this program was stopped and runs again.
	fmt.Scanln()
	for _, permit := range permits {
		must(0, permit.Context().Err())
		must(0, permit.Release(context.Background()))
	}
	must(0, client.Close())
}
