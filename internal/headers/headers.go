// Package headers writes the fields that tell a client where it stands:
// X-RateLimit-* (legacy.go), the IETF draft's RateLimit and RateLimit-Policy
// (ietf.go) and Retry-After (retry.go), one small encoder each.
//
// All fields of an answer speak of one entry, whose numbers are the [Facts].
// They are whole and never negative. Nothing here has a clock or keeps state:
// one [Style] may be shared by any number of goroutines, one [Fields] may not.
package headers

import "iter"

// Facts are the numbers of the one entry that the fields speak of.
type Facts struct {
	// Rule names the policy; Limit is what its full bucket holds, and WindowMS
	// the time in which that much comes back.
	Rule            string
	Limit, WindowMS int64
	// Remaining is what is left in whole tokens, ResetMS the time to full or to
	// the window's end.
	Remaining, ResetMS int64
	// NowMS is the clock of the decision in ms of the UTC epoch.
	NowMS int64
	// Denied says that the request was refused; RetryMS is then how long to wait,
	// or 0 where no waiting helps.
	Denied  bool
	RetryMS int64
}

// Style says which fields are written and how. The zero value is the default:
// reset as epoch second, draft 11, no jitter.
type Style struct {
	Reset Reset
	IETF  IETF
	// Jitter spreads Retry-After by up to this part of the wait, later only: 0 to
	// 0.1. Without it everyone told the same second comes back in it.
	Jitter float64
	// Rand returns numbers in [0, 1) for Jitter, safe for concurrent use. Nil
	// means no jitter.
	Rand func() float64
}

// MaxJitter is the largest Jitter.
const MaxJitter = 0.1

// Fields are the encoded fields of one answer. The zero value is empty and
// ready; encoding again reuses its memory. Not safe for concurrent use.
type Fields struct {
	list []field
	text []byte
	// policy is whose text stands at the beginning of text, before all of an answer:
	// it is the same in the next answer by the same rule and numbers, which is a third
	// of the work of encoding.
	policy policy
}

type field struct {
	name name
	span
}

// span is where a value stands in the text.
type span struct{ start, end int }

// SetIn sets the fields in the header of an answer, under the names in net/http's
// spelling, so that its Get and Del find them. It allocates twice, whatever their
// number.
func (f *Fields) SetIn(header map[string][]string) {
	text := string(f.text)
	values := make([]string, len(f.list))
	for i, x := range f.list {
		values[i] = text[x.start:x.end]
		header[x.name.canonical()] = values[i : i+1 : i+1]
	}
}

// Reset empties f and keeps its memory.
func (f *Fields) Reset() {
	f.list, f.text = f.list[:0], f.text[:f.policy.at.end]
}

// Len returns the number of fields.
func (f *Fields) Len() int { return len(f.list) }

// All yields name and value in the order written. The value is valid until f is
// used again.
func (f *Fields) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, x := range f.list {
			if !yield(x.name.sent(), f.text[x.start:x.end]) {
				return
			}
		}
	}
}

// Encode replaces what f holds with all fields of one answer.
func (s *Style) Encode(f *Fields, facts Facts) {
	f.Reset()
	f.speakOf(&facts)
	s.legacy(f, &facts)
	s.ietf(f, &facts)
	s.EncodeRetry(f, facts)
}

// add names what was appended to text since start.
func (f *Fields) add(n name, start int) {
	f.list = append(f.list, field{n, span{start, len(f.text)}})
}

// seconds returns ms in whole seconds, rounded up: a client that comes back
// earlier would be refused again.
func seconds(ms int64) int64 {
	if ms <= 0 {
		return 0
	}
	return (ms-1)/1000 + 1
}
