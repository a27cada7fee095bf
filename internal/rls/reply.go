package rls

import (
	"math"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tallygate/tallygate"
)

const (
	codeOK   = rlsv3.RateLimitResponse_OK
	codeOver = rlsv3.RateLimitResponse_OVER_LIMIT
)

// few is how many descriptors nearly every request has at most: their statuses are
// in the reply itself, so that it is one allocation.
const few = 2

// reply is an answer and what it is made of.
type reply struct {
	response rlsv3.RateLimitResponse
	list     [few]*rlsv3.RateLimitResponse_DescriptorStatus
	parts    [few]part
}

// part is the status of one descriptor.
type part struct {
	status rlsv3.RateLimitResponse_DescriptorStatus
	limit  rlsv3.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// newReply returns an answer of n statuses, OK all of them, and their parts.
func newReply(n int) (*rlsv3.RateLimitResponse, []part) {
	r := new(reply)
	parts, list := r.parts[:], r.list[:]
	if n > few {
		parts, list = make([]part, n), make([]*rlsv3.RateLimitResponse_DescriptorStatus, n)
	}
	for i := range n {
		parts[i].status.Code = codeOK
		list[i] = &parts[i].status
	}
	r.response.OverallCode = codeOK
	r.response.Statuses = list[:n]
	return &r.response, parts[:n]
}

// tell writes the statuses of a verdict: of each set what its strictest entry says.
// limits are those that the descriptors brought.
func tell(parts []part, limits []override, v *tallygate.Verdict) {
	for i, from := 0, 0; i < len(parts); i++ {
		to := from
		for to < len(v.Entries) && v.Entries[to].Set == i {
			to++
		}
		e := strictest(v.Entries[from:to])
		if e != nil {
			parts[i].tell(e)
		}
		// Where the pod answered in the store's place nobody knows what is left: 0 would
		// be a lie.
		unknown := e != nil && e.Allow && !e.Counted && e.Source == tallygate.SourceFallback
		if l := limits[i]; l.windowS > 0 && !unknown {
			parts[i].limited(int64(l.requests), l.windowS*1000)
			parts[i].limit.Name = "" // it has none but its numbers
			parts[i].status.LimitRemaining = min(parts[i].status.LimitRemaining, l.requests)
		}
		from = to
	}
}

// strictest returns the entry that a status speaks of, nil where no rule matched: of
// those that deny the one that does for longest, else of those with numbers the one
// with least left, an enforced one before a shadow.
func strictest(entries []tallygate.EntryVerdict) *tallygate.EntryVerdict {
	var best *tallygate.EntryVerdict
	for i := range entries {
		if e := &entries[i]; best == nil || stricter(e, best) {
			best = e
		}
	}
	return best
}

func stricter(a, b *tallygate.EntryVerdict) bool {
	aDenies, bDenies := denies(a), denies(b)
	switch {
	case aDenies != bDenies:
		return aDenies
	case aDenies:
		return wait(a) > wait(b)
	case a.Enforced() != b.Enforced():
		return a.Enforced() && (a.Counted || !b.Counted)
	case a.Counted != b.Counted:
		return a.Counted
	default:
		return a.Counted && a.Remaining < b.Remaining
	}
}

func denies(e *tallygate.EntryVerdict) bool { return !e.Allow && e.Enforced() }

// wait is how long a denial lasts in ms: for ever where no waiting helps.
func wait(e *tallygate.EntryVerdict) int64 {
	if e.Reason != tallygate.ReasonOverLimit {
		return math.MaxInt64
	}
	return e.RetryMS
}

// tell writes the status that an entry gives.
func (p *part) tell(e *tallygate.EntryVerdict) {
	over := denies(e)
	if over {
		p.status.Code = codeOver
	}
	switch {
	case e.Counted:
		p.limited(e.Limit, e.WindowMS)
		p.limit.Name = e.Rule
		p.status.LimitRemaining = clamp(e.Remaining)
		if over {
			p.status.LimitRemaining = 0
		}
	case e.Allow && e.Source == tallygate.SourceRule:
		p.status.LimitRemaining = math.MaxUint32 // an allow rule: there is no limit
	}
	switch {
	case over && e.RetryMS > 0:
		p.resets(e.RetryMS)
	case !over && e.Counted:
		p.resets(e.ResetMS)
	}
}

// limited writes current_limit.
func (p *part) limited(requests, windowMS int64) {
	p.limit.RequestsPerUnit = clamp(requests)
	var times uint32
	p.limit.Unit, times = unitOf(windowMS)
	if times > 1 {
		p.limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	p.status.CurrentLimit = &p.limit
}

// resets writes duration_until_reset in whole seconds, rounded up: Envoy passes on
// whole seconds of it, and a client that is back earlier would be refused again.
func (p *part) resets(ms int64) {
	p.reset.Seconds = (max(ms, 0) + 999) / 1000
	p.status.DurationUntilReset = &p.reset
}
