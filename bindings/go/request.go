package permits

import (
	"encoding/json"
	"slices"
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
		return nil, &Error{Semaphore: semaphore, Reason: "the request is too long", kind: ErrInvalid}
	case !f.isUTF8():
		// JSON has changed a text.
		return nil, &Error{Semaphore: semaphore, Reason: "a text of the request is not UTF-8", kind: ErrInvalid}
	}
	return append(line, '\n'), nil
}

func (f fields) isUTF8() bool {
	for _, value := range f {
		text, isText := value.(string)
		others, _ := value.([]fields)
		if isText && !utf8.ValidString(text) || slices.ContainsFunc(others, func(f fields) bool { return !f.isUTF8() }) {
			return false
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
