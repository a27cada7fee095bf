package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// refusal is an error that is a problem. Its cause is logged, never shown: it may
// name hosts.
type refusal struct {
	api.Problem
	cause error
	allow string // the methods there are, for 405
}

func (r *refusal) Error() string { return r.Detail }
func (r *refusal) Unwrap() error { return r.cause }

// refuse returns a problem of a code.
func refuse(code api.Code, detail string) *refusal {
	return &refusal{Problem: api.Problem{Code: code, Detail: detail}}
}

// refuseAt says where in the request the problem is.
func refuseAt(code api.Code, pointer, detail string) *refusal {
	r := refuse(code, detail)
	r.Pointer = pointer
	return r
}

// status returns status and title of a code: the one place that turns errors into
// HTTP.
func status(code api.Code) (status int, title string) {
	switch code {
	case api.BadRequest:
		return http.StatusBadRequest, "Malformed request"
	case api.Unauthorized:
		return http.StatusUnauthorized, "Who are you"
	case api.Forbidden:
		return http.StatusForbidden, "Not allowed"
	case api.UnknownRule:
		return http.StatusNotFound, "Unknown rule"
	case api.Code(tallygate.CodeUnknownDomain):
		return http.StatusNotFound, "Unknown domain"
	case api.NotFound:
		return http.StatusNotFound, "Not found"
	case api.MethodNotAllowed:
		return http.StatusMethodNotAllowed, "Method not allowed"
	case api.RequestTimeout:
		return http.StatusRequestTimeout, "The body did not arrive in time"
	case api.VersionConflict:
		return http.StatusConflict, "Somebody else changed it"
	case api.ChangedElsewhere:
		return http.StatusConflict, "The rules are not changed here"
	case api.NotProven:
		return http.StatusConflict, "The candidate has not proven itself"
	case api.TooLarge:
		return http.StatusRequestEntityTooLarge, "Too large"
	case api.UnsupportedMediaType:
		return http.StatusUnsupportedMediaType, "Unsupported content encoding"
	case api.InvalidRule:
		return http.StatusUnprocessableEntity, "Invalid rule or override"
	case api.Code(tallygate.CodeInvalidCost):
		return http.StatusUnprocessableEntity, "Invalid cost"
	case api.Code(tallygate.CodeMissingIdentity):
		return http.StatusUnprocessableEntity, "Missing identity"
	case api.PreconditionRequired:
		return http.StatusPreconditionRequired, "Say which version you have seen"
	case api.TooManyRequests:
		return http.StatusTooManyRequests, "Too many requests"
	case api.StoreUnavailable:
		return http.StatusServiceUnavailable, "The store is unavailable"
	case api.StoreTimeout:
		return http.StatusGatewayTimeout, "The store did not answer in time"
	case api.Overloaded:
		return http.StatusServiceUnavailable, "Too many requests in flight"
	case api.Unavailable:
		return http.StatusServiceUnavailable, "Not available"
	default:
		return http.StatusServiceUnavailable, "Not available"
	}
}

// retryAfter is what a client is told to wait where the store or the load is the
// reason.
const retryAfter = 1

// busyAfter is what a writer is told to wait whose turn did not come within 10 s: a
// change that takes so long is a large bulk.
const busyAfter = 5

// problem completes a refusal.
func (r *refusal) problem() api.Problem {
	p := r.Problem
	p.Status, p.Title = status(p.Code)
	p.Type = "urn:tallygate:problem:" + string(p.Code)
	if p.RetryAfter == 0 && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout) {
		p.RetryAfter = retryAfter
	}
	return p
}

// writeProblem answers with what went wrong, and logs what the answer does not show.
func (a *API) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*refusal](err)
	if !ok {
		e = &refusal{Problem: api.Problem{Code: api.Unavailable, Detail: "this could not be done"}, cause: err}
	}
	if e.cause != nil && r.Context().Err() == nil {
		// The pattern, not the path: a path may hold a key.
		a.log.Error("the admin API could not answer", "method", r.Method, "endpoint", pattern(r), "error", e.cause)
	}
	p := e.problem()
	h := w.Header()
	if p.Code == api.Unauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="tallygate"`)
	}
	if e.allow != "" {
		h.Set("Allow", e.allow)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	write(w, "application/problem+json", p.Status, p)
}

// write answers with JSON.
func write(w http.ResponseWriter, kind string, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		// Bodies are the API's own types, and what rows hold is made valid before.
		status, kind, text = http.StatusInternalServerError, "application/problem+json", []byte(`{"code":"unavailable"}`)
	}
	text = append(text, '\n')
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client is gone if this fails
}

// ofStore turns an error of the store of rules into a problem. at is where in the
// body the change of an index stands.
func ofStore(err error, at func(index int) string) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if errors.Is(err, rulestore.ErrBusy) {
		out := refuse(api.Overloaded, rulestore.ErrBusy.Error()+"; nothing was changed, try again")
		out.RetryAfter, out.cause = busyAfter, err
		return out
	}
	e, ok := errors.AsType[*rulestore.Error](err)
	if !ok {
		// Never a 500: that the database is away is nobody's mistake here.
		code, detail := api.StoreUnavailable, "the database of the rules did not answer; whether a change was made, reading tells"
		return &refusal{Problem: api.Problem{Code: code, Detail: detail}, cause: err}
	}
	out := &refusal{Problem: api.Problem{Detail: told(e), Rule: e.Rule, Key: e.Key}}
	place := ""
	if at != nil {
		place = at(e.Index)
	}
	if place != "" {
		index := e.Index
		out.Index, out.Pointer = &index, api.Pointer(place)
	}
	switch e.Code {
	case rulestore.NotFound:
		out.Code = api.NotFound
		if e.Key == nil {
			out.Code = api.UnknownRule
		}
	case rulestore.Conflict:
		current := e.Current
		out.Code, out.Current = api.VersionConflict, &current
	case rulestore.Invalid:
		out.Code, out.Errors = api.InvalidRule, api.Faults(place, e.Problems)
		if len(out.Errors) > 0 {
			out.Pointer = out.Errors[0].Pointer
		}
	case rulestore.Elsewhere:
		out.Code = api.ChangedElsewhere
	default:
		out.Code = api.BadRequest
	}
	return out
}

// told is an error as a sentence that names its rule once.
func told(e *rulestore.Error) string {
	if len(e.Problems) == 0 {
		return e.Error()
	}
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return (&rulestore.Error{Rule: e.Rule, Key: e.Key, Message: strings.Join(lines, "; ")}).Error()
}

// ofLimiter turns an error of the limiter into a problem.
func ofLimiter(err error) error {
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok {
		return &refusal{Problem: api.Problem{Code: api.Unavailable, Detail: "the limiter did not answer"}, cause: err}
	}
	out := &refusal{Problem: api.Problem{Code: api.Code(e.Code), Detail: e.Message, Rule: e.Rule}, cause: e.Err}
	if e.Field != "" {
		out.Pointer = api.Pointer(e.Field)
	}
	if e.Code == tallygate.CodeClosed || e.Code == tallygate.CodeCanceled || errors.Is(err, context.Canceled) {
		out.Code = api.Unavailable
	}
	return out
}
