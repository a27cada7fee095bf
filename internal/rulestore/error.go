package rulestore

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/rules"
)

// Code says what is wrong with a change, or with a question.
type Code string

// The codes. Whether an If-Match is there at all is for the API to ask.
const (
	// NotFound: there is no such rule, override or version.
	NotFound Code = "not_found"
	// Conflict: it has another version than the one the caller has seen.
	Conflict Code = "version_conflict"
	// Invalid: the change makes no sense, or its body has faults.
	Invalid Code = "invalid"
	// Elsewhere: these rules are not changed here.
	Elsewhere Code = "changed_elsewhere"
)

// ErrBusy is the error of a Writer whose turn did not come: changes go one after the
// other, and one before it takes long. Nothing was changed.
var ErrBusy = errors.New("another change of the rules is being made and takes long")

// Error is an answer: nothing was changed. Any other error of a Writer but ErrBusy says
// that the database could not be asked; where the connection was lost during the
// commit, the change may have been made, and reading tells.
type Error struct {
	Code Code
	// Index is the place of the change in its bulk, from 0.
	Index int
	// Rule and Key are what it is about.
	Rule string
	Key  []string
	// Current is the version that is there, for a Conflict; 0 means none.
	Current int64
	// Problems are the faults of the body, for Invalid; may be empty.
	Problems rules.Problems
	// Message is one sentence for people, without the rule.
	Message string
}

// Error returns what it is about and the sentence.
func (e *Error) Error() string {
	switch {
	case e.Rule == "" && e.Key == nil:
		return e.Message
	case e.Key != nil:
		return fmt.Sprintf("rule %q, key %q: %s", e.Rule, e.Key, e.Message)
	default:
		return fmt.Sprintf("rule %q: %s", e.Rule, e.Message)
	}
}

// CodeOf returns the code of an error, "" if it is not an [Error].
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func invalid(message string) *Error { return &Error{Code: Invalid, Message: message} }

func faulty(problems rules.Problems) *Error {
	return &Error{Code: Invalid, Problems: problems, Message: problems.Error()}
}

// Match compares the version that is there (0 for none) with the one that the
// caller has seen.
func Match(current, ifMatch int64) error {
	switch {
	case current == ifMatch:
		return nil
	case current == 0:
		return &Error{Code: NotFound, Message: "is not there"}
	case ifMatch == 0:
		return &Error{Code: Conflict, Current: current, Message: fmt.Sprintf("is there already, with version %d", current)}
	default:
		return &Error{Code: Conflict, Current: current, Message: fmt.Sprintf("has version %d, not %d", current, ifMatch)}
	}
}
