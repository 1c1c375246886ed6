package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain is the driver, if a test has started it.
func TestMain(m *testing.M) {
	if os.Getenv("PERMITS_TEST_ROLE") == "driver" {
		main()
		return
	}
	os.Unsetenv("PERMITS_URL_FILE")
	os.Exit(m.Run())
}

func TestARequestThatWaitsEndsWithAReleaseAloneAndEveryRequestHasALastEvent(t *testing.T) {
	driver := exec.Command(os.Args[0])
	driver.Env = append(os.Environ(), "PERMITS_TEST_ROLE=driver", "PERMITS_URL=memory:")
	if os.Getenv("PERMITS_PROGRAM") == "" {
		driver.Env = append(driver.Env, "PERMITS_PROGRAM=../../../../target/debug/permits")
	}
	driver.Stderr = os.Stderr
	lines, inErr := driver.StdinPipe()
	out, outErr := driver.StdoutPipe()
	if inErr != nil || outErr != nil {
		t.Fatal(inErr, outErr)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	events := bufio.NewScanner(out)
	expect := func(text string) {
		t.Helper()
		if !events.Scan() || !strings.Contains(events.Text(), text) {
			t.Errorf("%s, not %s", events.Text(), text)
		}
	}
	expect("hello")
	fmt.Fprintln(lines, `{"id":1,"acquire":"s","limit":1}`)
	expect("granted")
	fmt.Fprintln(lines, `{"id":2,"acquire":"s","limit":1}`)
	fmt.Fprintln(lines, `{"id":2,"renew":true}`)
	expect("invalid")
	fmt.Fprintln(lines, `{"id":2,"release":true}`)
	expect("released")
	// Their events are longer than a pipe, so the driver cannot write them all before it has closed its client.
	const waiting = 1500
	for id := range waiting {
		fmt.Fprintf(lines, `{"id":%d,"acquire":"s","limit":1}`+"\n", 3+id)
	}
	lines.Close()
	for range 1 + waiting {
		expect("released")
	}
	if err := driver.Wait(); err != nil {
		t.Error(err)
	}
}
