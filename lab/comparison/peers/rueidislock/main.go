// The driver of rueidislock; the commands are described in ../README.md. A lock admits one: what needs a higher
// limit is either done with a name for each task, or refused. Set up as its documentation advises for a single
// server of version 7.0.5 or newer: one key in place of a majority of three, and no notices of one's own writes.
// One default is changed: a request to the server may take a second. After 20 ms, which busy processors exceed, it is
// given up, and as nobody holds the lock then, no notice comes and the waiter waits for ever.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"golang.org/x/sys/unix"
)

type object = map[string]any

type driver struct {
	locker rueidislock.Locker
	hoard  []context.CancelFunc
	stop   context.CancelFunc
	grants atomic.Int64
}

func connect() rueidislock.Locker {
	address, err := url.Parse(os.Args[1])
	check(err)
	leaseMs, err := strconv.Atoi(os.Args[2])
	check(err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address.Host}},
		KeyValidity:    time.Duration(leaseMs) * time.Millisecond,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	})
	check(err)
	return locker
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// nowUs is the time by the clock that all processes share.
func nowUs() float64 {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return float64(now.Sec)*1e6 + float64(now.Nsec)/1e3
}

func acquire(locker rueidislock.Locker, name string) context.CancelFunc {
	_, release, err := locker.WithContext(context.Background(), name)
	check(err)
	return release
}

func summary(taken []float64, began float64) object {
	slices.Sort(taken)
	at := func(part float64) float64 { return taken[int(float64(len(taken)-1)*part)] }
	return object{
		"cycles": len(taken), "seconds": (nowUs() - began) / 1e6,
		"p50_us": at(0.5), "p99_us": at(0.99), "max_us": at(1),
	}
}

// Runs so many tasks, each of which returns what it noted.
func together[T any](tasks int, task func(number int) []T) []T {
	var (
		running sync.WaitGroup
		lock    sync.Mutex
		all     []T
	)
	for number := range tasks {
		running.Go(func() {
			noted := task(number)
			lock.Lock()
			defer lock.Unlock()
			all = append(all, noted...)
		})
	}
	running.Wait()
	return all
}

func (d *driver) cycle(name string, tasks int, seconds float64) object {
	began := nowUs()
	until := began + seconds*1e6
	taken := together(tasks, func(number int) (taken []float64) {
		own := fmt.Sprintf("%s:%d", name, number)
		for last := nowUs(); last < until; {
			acquire(d.locker, own)()
			now := nowUs()
			taken = append(taken, now-last)
			last = now
		}
		return taken
	})
	return summary(taken, began)
}

func (d *driver) turn(name string, count int) object {
	began := nowUs()
	var taken []float64
	for number := range count {
		one := nowUs()
		acquire(d.locker, fmt.Sprintf("%s:%d", name, number))()
		taken = append(taken, nowUs()-one)
	}
	return summary(taken, began)
}

func (d *driver) contend(name string, tasks int, hold, pause time.Duration, seconds float64) object {
	until := nowUs() + seconds*1e6
	events := together(tasks, func(int) (events [][3]float64) {
		for asked := nowUs(); asked < until; asked = nowUs() {
			release := acquire(d.locker, name)
			got := nowUs()
			time.Sleep(hold)
			freed := nowUs()
			release()
			events = append(events, [3]float64{asked, got, freed})
			time.Sleep(pause)
		}
		return events
	})
	return object{"events": events}
}

func (d *driver) start(name string) object {
	began := nowUs()
	locker := connect()
	release := acquire(locker, name)
	taken := nowUs() - began
	release()
	locker.Close()
	return object{"us": taken}
}

func (d *driver) keep(name string, count int) object {
	d.hoard = together(count, func(number int) []context.CancelFunc {
		own := name
		if count > 1 {
			own = fmt.Sprintf("%s:%d", name, number)
		}
		return []context.CancelFunc{acquire(d.locker, own)}
	})
	return object{"held": len(d.hoard)}
}

func (d *driver) queue(name string, count int) object {
	if count > 1000 {
		return object{"cannot": "all waiters of a process try again whenever one gives up the lock"}
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	for range count {
		go func() {
			for {
				_, release, err := d.locker.WithContext(ctx, name)
				if err != nil {
					return
				}
				d.grants.Add(1)
				release()
			}
		}()
	}
	return object{"queued": count}
}

func (d *driver) wait(name string) object {
	asked := nowUs()
	release := acquire(d.locker, name)
	got := nowUs()
	release()
	return object{"asked": asked, "got": got}
}

func (d *driver) free() object {
	for _, release := range d.hoard {
		release()
	}
	d.hoard = nil
	if d.stop != nil {
		d.stop()
	}
	return object{}
}

func version() string {
	information, _ := debug.ReadBuildInfo()
	for _, module := range information.Deps {
		if module.Path == "github.com/redis/rueidis" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return ""
}

func (d *driver) execute(words []string) object {
	number := func(at int) float64 {
		value, err := strconv.ParseFloat(words[at], 64)
		check(err)
		return value
	}
	micros := func(at int) time.Duration { return time.Duration(number(at)) * time.Microsecond }
	switch words[0] {
	case "hello":
		return object{"version": version()}
	case "start":
		return d.start(words[1])
	case "cycle":
		return d.cycle(words[1], int(number(3)), number(4))
	case "turn":
		return d.turn(words[1], int(number(2)))
	case "contend":
		if words[2] != "1" {
			return object{"cannot": "a lock: its limit is 1"}
		}
		return d.contend(words[1], int(number(3)), micros(4), micros(5), number(6))
	case "hoard":
		return d.keep(words[1], int(number(2)))
	case "queue":
		return d.queue(words[1], int(number(2)))
	case "count":
		return object{"grants": d.grants.Load()}
	case "wait":
		return d.wait(words[1])
	case "free":
		return d.free()
	}
	check(fmt.Errorf("no such command: %v", words))
	return nil
}

func main() {
	driver := &driver{locker: connect()}
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		check(answers.Encode(driver.execute(strings.Fields(lines.Text()))))
	}
}
