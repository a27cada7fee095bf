package api

import (
	"strings"

	"github.com/tallygate/tallygate/rules"
)

// Code sorts problems for machines. The list only grows.
type Code string

// The codes of the admin API. Those of checks may come beside them, from usage and
// explain.
const (
	BadRequest           Code = "bad_request"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	UnknownRule          Code = "unknown_rule"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	RequestTimeout       Code = "request_timeout"
	VersionConflict      Code = "version_conflict"
	NotProven            Code = "not_proven"
	ChangedElsewhere     Code = "changed_elsewhere"
	TooLarge             Code = "too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	InvalidRule          Code = "invalid_rule"
	PreconditionRequired Code = "precondition_required"
	TooManyRequests      Code = "too_many_requests"
	StoreUnavailable     Code = "store_unavailable"
	StoreTimeout         Code = "store_timeout"
	Overloaded           Code = "overloaded"
	Unavailable          Code = "unavailable"
)

// Problem is an answer that is none, as in RFC 9457.
type Problem struct {
	Type    string `json:"type" doc:"urn:tallygate:problem: and the code"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Code    Code   `json:"code"`
	Detail  string `json:"detail"`
	Pointer string `json:"pointer,omitempty" doc:"the place in the body, or the header or parameter"`
	Rule    string `json:"rule,omitempty"`
	Key     Key    `json:"key,omitempty"`
	// Index is a pointer since the first change of a bulk has 0.
	Index   *int   `json:"index,omitempty" doc:"the place of the change in its bulk, from 0"`
	Current *int64 `json:"current_version,omitempty" doc:"the version that is there; 0 for none"`
	// RetryAfter is that of the header.
	RetryAfter int     `json:"retry_after_seconds,omitempty"`
	Errors     []Fault `json:"errors,omitempty" doc:"all faults of a body"`
}

// Fault is one thing wrong with a body.
type Fault struct {
	Pointer string `json:"pointer" doc:"the place in the body"`
	Field   string `json:"field" doc:"the field as rules are documented, such as match.plan"`
	Detail  string `json:"detail"`
	Value   string `json:"value,omitempty" doc:"what stood there, shortened"`
	Fix     string `json:"fix,omitempty"`
}

// Faults writes what is wrong with a body that stands at a JSON pointer.
func Faults(at string, problems rules.Problems) []Fault {
	out := make([]Fault, len(problems))
	for i, p := range problems {
		out[i] = Fault{Pointer: Pointer(at + path(p.Field)), Field: p.Field, Detail: p.Message, Value: p.Value, Fix: p.Fix}
	}
	return out
}

// Problems returns what is wrong with the body of a rule.
func Problems(rule string, faults []Fault) rules.Problems {
	var out rules.Problems
	for _, f := range faults {
		out = append(out, rules.Problem{Rule: rule, Field: f.Field, Value: f.Value, Message: f.Detail, Fix: f.Fix})
	}
	return out
}

// path turns the name of a field into a JSON pointer: match.plan, identity[1].
func path(field string) string {
	if field == "" {
		return ""
	}
	// Only the first dot parts: an attribute's name may have some.
	name, rest, nested := strings.Cut(field, ".")
	if at := strings.IndexByte(name, '['); at >= 0 {
		name = name[:at] + "/" + strings.TrimSuffix(name[at+1:], "]")
		return "/" + name
	}
	if !nested {
		return "/" + escape(name)
	}
	return "/" + escape(name) + "/" + escape(rest)
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// Pointer is a JSON pointer in its URI form.
func Pointer(pointer string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/?"
	var out strings.Builder
	out.WriteByte('#')
	for i := range len(pointer) {
		if c := pointer[i]; strings.IndexByte(plain, c) >= 0 {
			out.WriteByte(c)
		} else {
			const hex = "0123456789ABCDEF"
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}
