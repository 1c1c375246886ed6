package permits

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// maxLine is how long a line may be. The command does not read longer ones.
const maxLine = 8 * 1024

// fields are a line for the command. docs/languages/any.md describes them.
type fields map[string]any

// line returns the fields as a line, for the command.
func (f fields) line(semaphore string) ([]byte, error) {
	line, err := json.Marshal(f)
	switch {
	case err != nil || len(line) >= maxLine:
		return nil, invalid(semaphore, "the request is too long")
	case !utf8.ValidString(fmt.Sprint(f)):
		// JSON has changed a text.
		return nil, invalid(semaphore, "a text of the request is not UTF-8")
	}
	return append(line, '\n'), nil
}

// shorten takes time that has passed from the timeouts of the request and of those that it has in also. It
// returns false if nothing is left of one. A request whose timeout is 0 does not wait, so that stays.
func (f fields) shorten(passed time.Duration) bool {
	others, _ := f["also"].([]fields)
	for _, request := range append(others, f) {
		if timeout, _ := request["timeout_ms"].(float64); timeout > 0 {
			if timeout -= milliseconds(passed); timeout <= 0 {
				return false
			}
			request["timeout_ms"] = timeout
		}
	}
	return true
}

// An Option is an option of a request for a permit.
type Option func(fields)

func milliseconds(time time.Duration) float64 { return float64(time) / 1e6 }

// RequireLimit refuses the request with ErrInvalid if the limit in force is not the limit of the Semaphore,
// for example because an operator has set another one.
func RequireLimit() Option { return func(f fields) { f["require_limit"] = true } }
