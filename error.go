package tallygate

import (
	"errors"
	"fmt"
)

// Code sorts errors for machines. The list only grows.
type Code string

// The codes. They are the same in the library, in JSON and in logs.
const (
	// CodeBadRequest: the check itself is malformed.
	CodeBadRequest Code = "bad_request"
	// CodeTooLarge: a key or a list is beyond its bound.
	CodeTooLarge Code = "too_large"
	// CodeUnknownDomain and CodeUnknownRule: the check names what is not there.
	CodeUnknownDomain Code = "unknown_domain"
	CodeUnknownRule   Code = "unknown_rule"
	// CodeInvalidCost: no number of tokens, above the bound, above the rule's
	// max_cost, or above what the rule's full bucket holds.
	CodeInvalidCost Code = "invalid_cost"
	// CodeMissingIdentity: a matching rule counts by an attribute that is not
	// there, and neither an anonymous rule nor an address stands in.
	CodeMissingIdentity Code = "missing_identity"
	// CodeNotReservable: a rule of the check cannot set a cost aside.
	CodeNotReservable Code = "not_reservable"
	// CodeStoreTimeout and CodeStoreUnavailable: the store did not answer and a
	// rule that fails closed needed it. The request must not pass.
	CodeStoreTimeout     Code = "store_timeout"
	CodeStoreUnavailable Code = "store_unavailable"
	// CodeOverloaded: the service, or the upstream behind it, has more to do than it
	// can. The limiter itself never says so.
	CodeOverloaded Code = "overloaded"
	// CodeCanceled: the context had ended before the check began.
	CodeCanceled Code = "canceled"
	// CodeClosed: the limiter was closed.
	CodeClosed Code = "closed"
)

// Error says why there is no verdict. A denial is a [Verdict], never an Error.
// Unless Code is store_timeout or store_unavailable, nothing was spent; with those
// it may have been: the call can have reached the store.
type Error struct {
	Code Code
	// Message names the value and the bound, for people.
	Message string
	// Field is the part of the check that is wrong as a JSON pointer, such as
	// "/entries/2/cost"; "" if none or the whole.
	Field string
	// Rule is the rule concerned; "" if none.
	Rule string
	// Err is the cause, if there is one.
	Err error
}

// ErrClosed is what a closed limiter answers.
var ErrClosed = &Error{Code: CodeClosed, Message: "the limiter is closed"}

// Error returns code, field and message.
func (e *Error) Error() string {
	text := string(e.Code)
	if e.Field != "" {
		text += " at " + e.Field
	}
	text += ": " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first [Error] in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func badRequest(field, format string, args ...any) *Error {
	return &Error{Code: CodeBadRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}
