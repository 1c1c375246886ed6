package permits

import (
	"context"
	"encoding/json"
)

// A Change is what an operator does to a semaphore, such as [SetLimit] or [Revoke].
type Change interface{ fields() fields }

// Changed is the result of a [Change].
type Changed struct {
	// Found is false if there was nothing to revoke or to delete.
	Found bool `json:"found"`
	// Limit is the limit after a change of the limit; 0 if none is stored.
	Limit int `json:"limit"`
	// LimitVersion is the version of the limit after a change of the limit.
	LimitVersion int64 `json:"limit_version"`
}

// Change makes a change as an operator. The error is [ErrNotNow] if the semaphore is in use, or if its limit
// has another version: then inspect it before you try again. If it is [ErrUnavailable], [ErrClosed], or that
// of ctx, the change may have been made.
func (s *Semaphore) Change(ctx context.Context, change Change) (Changed, error) {
	line := change.fields()
	line["name"] = s.name
	_, answer, err := s.client.call(ctx, s.name, line)
	return answer.Changed, err
}

// Inspect returns the state of the semaphore. One that nobody uses has a state, too.
func (s *Semaphore) Inspect(ctx context.Context) (*Inspection, error) {
	_, answer, err := s.client.call(ctx, s.name, fields{"inspect": s.name})
	if err != nil {
		return nil, err
	}
	inspection := new(Inspection)
	if err := json.Unmarshal(answer.Inspection, inspection); err != nil {
		return nil, unavailable("the command has another form of inspections: " + err.Error())
	}
	return inspection, nil
}

// List returns the names of all semaphores of the store.
func (c *Client) List(ctx context.Context) ([]string, error) {
	_, answer, err := c.call(ctx, "", fields{"list": true})
	return answer.Names, err
}

// orNull is null in JSON if the value is the zero value, which says that the field is not set.
func orNull[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}
