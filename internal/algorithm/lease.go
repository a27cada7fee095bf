package algorithm

import "github.com/tallygate/tallygate/limit"

// GenerationMS is the length of a lease generation. A lease granted in
// generation g ends before generation g+2 begins: a bucket so needs no list of
// its leases, only two sums.
const GenerationMS = 500

// nearMS is the time whose share of the rate a pod may lease when half of what
// is left, over all pods, is less than that.
const nearMS = 20

// LeaseAsk is what a pod asks beyond its cost. Pods ≥ 1 may hold leases at a
// time; MaxCost tokens must stay reachable for a single request.
type LeaseAsk struct {
	Want, Pods, MaxCost int64
}

// Grant is a lease: so many tokens, already paid for, that a pod may spend
// within MS. Generation is what it names them by when it reports.
type Grant struct {
	Tokens, Generation, MS int64
}

// Out returns the tokens out on leases of a token bucket. Windows count leased
// tokens as spent and keep no account of them.
func (s *State) Out() int64 { return s.Bucket.out() }

// Lease grants what it may of ask and takes it. A log never leases: each of its
// tokens must be entered when it is spent.
func (s *State) Lease(now int64, ask LeaseAsk) Grant {
	if ask.Want <= 0 {
		return Grant{}
	}
	ask.Pods = max(1, ask.Pods)
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		return s.Bucket.lease(s.Limit, now, ask)
	case limit.SlidingWindow, limit.FixedWindow:
		return s.Window.lease(now, s.Remaining(now), s.Limit.Capacity, ask)
	case limit.SlidingLog:
	}
	return Grant{}
}

// Report books what became of leases of one generation, in tokens: used and
// returned unspent. It reports whether that changed anything; what is older
// than the leases that can still be out is ignored.
func (s *State) Report(generation, spent, back int64) (changed bool) {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		return s.Bucket.report(s.Limit, generation, spent, back)
	case limit.SlidingWindow, limit.FixedWindow:
		// Spent tokens were counted when they were leased.
		if generation == s.Window.Start && back > 0 && s.Window.Cur > 0 {
			s.Window.Cur = max(0, s.Window.Cur-back)
			return true
		}
	case limit.SlidingLog:
	}
	return false
}

// rotate turns to the generation of now, never to an earlier one: leases of
// generations that ended are no longer out.
func (b *Bucket) rotate(now int64) {
	k := max(floorDiv(now, GenerationMS), b.Gen)
	switch k - b.Gen {
	case 0:
	case 1:
		b.Out0, b.Out1 = 0, b.Out0
	default:
		b.Out0, b.Out1 = 0, 0
	}
	b.Gen = k
}

// report lowers out of that generation by what comes back, then by what was
// spent, each at most by what is there. The level rises by what came back, but
// not above the burst: a new one may be lower than what was out.
func (b *Bucket) report(l *limit.Limit, generation, spent, back int64) (changed bool) {
	var out *int64
	switch generation {
	case b.Gen:
		out = &b.Out0
	case b.Gen - 1:
		out = &b.Out1
	default:
		return false
	}
	back = min(back, *out)
	*out -= back
	if back > 0 {
		b.back(l, back)
	}
	spent = min(spent, *out)
	*out -= spent
	return spent > 0 || back > 0
}

// lease moves tokens from the level to out0: at most half of an equal part of
// what is left, at most half of what would make level and out alike, and never
// so much that a request of MaxCost could not become whole while they are out.
// Near the limit that is nothing, and a pod gets its part of the next 20 ms.
func (b *Bucket) lease(l *limit.Limit, now int64, ask LeaseAsk) Grant {
	p := l.PeriodMS
	left, out := b.Level/p, b.out()
	room := l.Burst - out - ask.MaxCost
	half := min(left/(2*ask.Pods), (left-out)/2)
	near := min(left, l.Rate*nearMS/(p*ask.Pods))
	n := min(ask.Want, max(half, near), room)
	if n <= 0 {
		return Grant{}
	}
	b.Level -= n * p
	b.Out0 += n
	ms := min((b.Gen+2)*GenerationMS-now, 2*GenerationMS) - 1
	return Grant{Tokens: n, Generation: b.Gen, MS: ms}
}

// lease takes tokens out of the window at once, and never past its end: what is
// not spent and not returned in time stays counted. A window that the clock has
// stepped back from leases nothing: its end is further away than it should be.
func (w *Window) lease(now, left, capacity int64, ask LeaseAsk) Grant {
	ms := min(w.End-now, 2*GenerationMS) - 1
	near := min(left, capacity*nearMS/((w.End-w.Start)*ask.Pods))
	n := min(ask.Want, max(left/(2*ask.Pods), near))
	if n <= 0 || ms <= 0 || now < w.Start {
		return Grant{}
	}
	w.Cur += n
	return Grant{Tokens: n, Generation: w.Start, MS: ms}
}
