package storetest

import (
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// leaseCases are promises of stores that grant leases.
func leaseCases() []testCase {
	return []testCase{
		{name: "LSE-01 fifty pods at once", leases: true, run: fiftyPods},
		{name: "cost 0 leases nothing", leases: true, run: looksLeaseNothing},
		{name: "a denied call leases nothing", leases: true, run: deniedLeaseNothing},
		{name: "reports settle leases, also when denied", leases: true, run: reportsSettle},
		{name: "a lease ends with its generations", leases: true, clock: true, run: leaseEnds},
		{name: "what is out does not refill", leases: true, clock: true, run: outDoesNotRefill},
		{name: "a window's lease is counted at once and ends with it", leases: true, clock: true, run: windowLease},
		{name: "a log never leases", leases: true, run: logNeverLeases},
		{name: "a burst cut below what is out", leases: true, run: burstCutBelowOut},
		{name: "a look tells what is out, and so does a take of cost 0", leases: true, run: looksTellOut},
		{name: "no leases are asked of a store without", run: withoutLeases},
	}
}

// leasing is an op that wants a lease.
func (s *subject) leasing(rule string, l *limit.Limit, want, pods int64) store.Op {
	op := s.op(rule, l, 1)
	op.Want, op.Pods = want, pods
	return op
}

func fiftyPods(s *subject) {
	op := s.leasing("rule", slowBucket(2000), 49, 50)
	sum := int64(0)
	for pod := range 50 {
		g := s.one(op)
		sum += 1 + g.Lease
		if pod == 0 {
			want(s, "first", 1+g.Lease, 20)
		}
		if g.LeaseMS < 1 || g.LeaseMS > 999 {
			s.Errorf("a lease of %d ms", g.LeaseMS)
		}
		// One op of the fifty may fall into the next generation, not further.
		want(s, "left and out", g.Remaining+g.Out, 2000-int64(pod)-1)
	}
	want(s, "granted", sum, 809)
	s.wantLeft(op, 1191)
}

func looksLeaseNothing(s *subject) {
	op := s.leasing("rule", slowBucket(100), 50, 1)
	op.Cost = 0
	want(s, "lease", s.one(op).Lease, 0)
	op.Cost, op.How = 1, store.Peek
	want(s, "lease of a peek", s.one(op).Lease, 0)
	s.wantLeft(op, 100)
}

func deniedLeaseNothing(s *subject) {
	op := s.leasing("rule", slowBucket(100), 50, 1)
	g := s.do(op, s.op("empty", slowBucket(1), 2))[0]
	want(s, "lease", g.Lease, 0)
	want(s, "out", g.Out, 0)
	s.wantLeft(op, 100)
}

func reportsSettle(s *subject) {
	op := s.leasing("rule", slowBucket(100), 10, 1)
	g := s.one(op)
	want(s, "lease", g.Lease, 10)
	report := s.op("rule", slowBucket(100), 1000) // denied: more than a burst
	report.Reports = []store.Report{{Generation: g.Generation, Spent: 4, Back: 5}}
	settled := s.one(report)
	want(s, "ok", settled.OK, false)
	want(s, "out", settled.Out, 1)
	want(s, "remaining", settled.Remaining, 94)
	report.Reports = []store.Report{{Generation: g.Generation, Back: 1000}}
	settled = s.one(report)
	want(s, "out after more than was out", settled.Out, 0)
	want(s, "remaining after more than was out", settled.Remaining, 95)
	report.Reports = []store.Report{{Generation: g.Generation - 2, Back: 1000}, {Generation: g.Generation + 9, Back: 1000}}
	want(s, "remaining after foreign generations", s.one(report).Remaining, 95)
}

func leaseEnds(s *subject) {
	s.align(500)
	op := s.leasing("rule", slowBucket(100), 10, 1)
	g := s.one(op)
	want(s, "lease ms", g.LeaseMS, 999)
	s.wait(999)
	want(s, "out in its last millisecond", s.one(s.op("rule", slowBucket(100), 0)).Out, 10)
	s.wait(1)
	want(s, "out after it", s.one(s.op("rule", slowBucket(100), 0)).Out, 0)
	late := s.op("rule", slowBucket(100), 0)
	late.Reports = []store.Report{{Generation: g.Generation, Back: 10}}
	want(s, "remaining after a late report", s.one(late).Remaining, 89)
	s.wait(499)
	op.Want = 1
	want(s, "lease ms late in a generation", s.one(op).LeaseMS, 500)
}

func outDoesNotRefill(s *subject) {
	s.align(500)
	l := perSecond(1000, 1, 100)
	g := s.one(s.leasing("rule", l, 40, 1))
	want(s, "lease", g.Lease, 40)
	s.wait(900)
	want(s, "left while 40 are out", s.left(s.op("rule", l, 0)), 60)
	s.wait(120) // 20 ms after the lease has ended
	want(s, "left 20 ms after", s.left(s.op("rule", l, 0)), 80)
}

func windowLease(s *subject) {
	s.align(60_000)
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		l := window(a, 100, 60_000)
		g := s.one(s.leasing(a.String(), l, 10, 1))
		want(s, a.String()+" lease", g.Lease, 10)
		want(s, a.String()+" remaining", g.Remaining, 89)
		report := s.op(a.String(), l, 0)
		report.Reports = []store.Report{{Generation: g.Generation, Spent: 4, Back: 6}}
		want(s, a.String()+" remaining after a report", s.one(report).Remaining, 95)
	}
	s.align(60_000)
	s.wait(59_700)
	l := window(limit.FixedWindow, 100, 60_000)
	g := s.one(s.leasing("late", l, 10, 1))
	want(s, "lease ms", g.LeaseMS, 299)
	s.wait(300)
	report := s.op("late", l, 1)
	report.Reports = []store.Report{{Generation: g.Generation, Back: 10}}
	want(s, "remaining in the next window", s.one(report).Remaining, 99)
}

func logNeverLeases(s *subject) {
	g := s.one(s.leasing("rule", four(100)[2], 10, 1))
	want(s, "lease", g.Lease, 0)
	want(s, "remaining", g.Remaining, 99)
}

// burstCutBelowOut: what comes back may not lift a bucket above its new burst.
func burstCutBelowOut(s *subject) {
	g := s.one(s.leasing("rule", at(2, slowBucket(200)), 50, 1))
	want(s, "lease", g.Lease, 50)
	small := s.op("rule", at(4, slowBucket(10)), 1)
	small.Reports = []store.Report{{Generation: g.Generation, Back: 50}}
	if got := s.one(small); got.Remaining > 10 || got.Remaining+got.Out > 10 {
		s.Errorf("%d left and %d out of a burst of 10", got.Remaining, got.Out)
	}
}

func withoutLeases(s *subject) {
	if s.Leases {
		s.Skip("the store grants leases")
	}
	for _, l := range four(100) {
		g := s.one(s.leasing(l.Algorithm.String(), l, 10, 1))
		want(s, l.String()+" lease", g.Lease, 0)
		want(s, l.String()+" remaining", g.Remaining, 99)
	}
}

func looksTellOut(s *subject) {
	op := s.leasing("rule", slowBucket(2000), 100, 1)
	g := s.one(op)
	want(s, "lease", g.Lease, 100)
	want(s, "out after the take", g.Out, 100)
	op.Cost, op.Want = 0, 0
	want(s, "out in a look", s.how(store.Peek, op).Out, 100)
	want(s, "remaining in a look", s.how(store.Peek, op).Remaining, 1899)
	want(s, "out in a take of cost 0", s.one(op).Out, 100)
	want(s, "out of a bucket nobody knows", s.how(store.Peek, s.op("unknown", slowBucket(5), 0)).Out, 0)
}
