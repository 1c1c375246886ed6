// Command judge decides whether recorded histories are possible for a semaphore with leases. It shares no
// code with the product: model.go is the semaphore, and porcupine searches an order of the operations that
// the model allows, each between its call and its return.
//
//	judge FILE...   prints a line for each history, and the verdict. Ends with 1 if a history is none.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	total, violations, began := 0, 0, time.Now()
	for _, file := range os.Args[1:] {
		from, err := os.Open(file)
		if err != nil {
			fail(file, err)
		}
		h, err := read(from)
		if err != nil {
			fail(file, err)
		}
		from.Close()
		isAllowed := true
		for _, semaphore := range h.semaphores() {
			operations, model, began := h.operations(semaphore), rules{h.Limit, h.Bound, h.Order}.model(), time.Now()
			fmt.Printf("%s --limit %d%s: %d operations, %d changes, %d kills, %d faults: ", h.Row, h.Limit,
				strings.TrimRight(" "+semaphore, " "), len(operations), len(h.changes), h.kills, h.faults)
			if total += len(operations); porcupine.CheckOperations(model, operations) {
				fmt.Printf("allowed, %.1f s\n", time.Since(began).Seconds())
			} else {
				isAllowed = false
				fmt.Printf("a violation, %.1f s\n%s", time.Since(began).Seconds(), longest(model, operations))
			}
		}
		if !isAllowed {
			violations++
		}
	}
	fmt.Printf("verdict: %d histories, %d operations, %d of the histories with a violation, %.1f s\n",
		len(os.Args)-1, total, violations, time.Since(began).Seconds())
	if violations > 0 || total == 0 {
		os.Exit(1)
	}
}

func fail(file string, err error) {
	fmt.Fprintf(os.Stderr, "judge: %s: %v\n", file, err)
	os.Exit(2)
}

// The end of the longest order that the model allows: the violation comes after it.
func longest(model porcupine.Model, operations []porcupine.Operation) (text string) {
	_, info := porcupine.CheckOperationsVerbose(model, operations, time.Minute)
	var order []porcupine.Operation
	for _, found := range info.PartialLinearizationsOperations()[0] {
		if len(found) > len(order) {
			order = found
		}
	}
	for _, last := range order[max(0, len(order)-5):] {
		text += fmt.Sprintf("  allowed, %d to %d: %T%+v\n", last.Call, last.Return, last.Input, last.Input)
	}
	return text
}
