package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/store"
)

// Agree makes so many random ops, in calls of one to four, against the store and
// against the [Model], and fails at the first answer that differs. The history
// mixes algorithms, everything an op can do, changes of numbers, and, with an
// injected clock, steps of it forward and back; the same seed gives the same
// history.
//
// What stores may differ in is left out: a bucket that is full may be forgotten
// or not, so it is reset before an op could tell; receipts are each store's own;
// a log's queue is granted or not.
func Agree(t testing.TB, h Harness, ops int, seed uint64) {
	t.Helper()
	a := &agreement{
		subject: newSubject(t, h),
		rng:     rand.New(rand.NewPCG(seed, 0)),
		seed:    seed,
		model:   NewModel(time.Now, h.Leases),
	}
	for i := range keysInHistory {
		for algorithm := range rulesInHistory {
			a.buckets = append(a.buckets, a.newBucket(i, algorithm))
		}
	}
	for a.done < ops {
		a.moveClock()
		a.call()
		if t.Failed() {
			t.Fatalf("seed %d, after %d ops; the last calls:\n%s", seed, a.done, strings.Join(a.recent, "\n"))
		}
	}
}

// The history's buckets: so many keys, and so many rules each.
const (
	keysInHistory  = 3
	rulesInHistory = 5
)

// agreement is one history under way.
type agreement struct {
	*subject
	rng     *rand.Rand
	seed    uint64
	model   *Model
	buckets []*historyBucket
	nowMS   int64 // of the last answer, moved by what the clock was moved since
	done    int
	recent  []string
}

// moveClock steps an injected clock: mostly a little, sometimes by windows,
// sometimes back.
func (a *agreement) moveClock() {
	if a.Advance == nil {
		return
	}
	var ms int64
	switch k := a.rng.IntN(100); {
	case k < 40:
		return
	case k < 65:
		ms = a.rng.Int64N(40)
	case k < 75: // an edge of windows or generations, or the millisecond before
		edge := []int64{500, 1000, 5000, 10_000, 60_000}[a.rng.IntN(5)]
		ms = edge - a.nowMS%edge - a.rng.Int64N(2)
	case k < 90:
		ms = a.rng.Int64N(2000)
	case k < 96:
		ms = a.rng.Int64N(70_000)
	case k < 97:
		ms = a.rng.Int64N(100_000_000)
	case k < 99:
		ms = -a.rng.Int64N(3000)
	default:
		ms = -a.rng.Int64N(200_000)
	}
	a.wait(ms)
	a.nowMS += ms
}

// call makes one call on buckets of one key, and compares.
func (a *agreement) call() {
	a.Helper()
	key := a.rng.IntN(keysInHistory)
	rules := a.rng.Perm(rulesInHistory)[:1+a.rng.IntN(4)]
	var ops []store.Op
	var buckets []*historyBucket
	a.findForgettable()
	for _, rule := range rules {
		b := a.buckets[key*rulesInHistory+rule]
		if b.forgettable {
			a.compare([]store.Op{{Bucket: b.name, Limit: b.newest(), How: store.Reset}}, []*historyBucket{b})
			b.forgettable = false
		}
		ops = append(ops, a.draw(b))
		buckets = append(buckets, b)
	}
	a.compare(ops, buckets)
}

// findForgettable marks the buckets that the store may have dropped by the time
// of the next call, and for good: the clock may step back to when they were not
// full. A real clock may move on meanwhile.
func (a *agreement) findForgettable() {
	const pause = 10_000
	for _, b := range a.buckets {
		if a.model.mayBeForgotten(a.nowMS, b.name) || a.Advance == nil && a.model.mayBeForgotten(a.nowMS+pause, b.name) {
			b.forgettable = true
		}
	}
}

// compare makes a call on both sides. The store's receipts stay with the store,
// the model's with the model.
func (a *agreement) compare(ops []store.Op, buckets []*historyBucket) {
	a.Helper()
	got, err := a.Store.Take(context.Background(), ops)
	refused := err != nil && slices.ContainsFunc(ops, func(op store.Op) bool { return op.How == store.Reserve })
	if err != nil && !refused {
		a.Fatalf("seed %d, op %d: %v\n%s", a.seed, a.done, err, describe(ops))
	}
	if !refused {
		a.nowMS = got[0].NowMS
	}
	mine := slices.Clone(ops)
	for i := range mine {
		if mine[i].How == store.Undo && mine[i].Reservation == (store.ReservationID{}) {
			mine[i].Receipt = buckets[i].undoing
		}
	}
	want, err := a.model.TakeAt(a.nowMS, mine)
	if refused {
		if err == nil { // a log is reserved in on neither side
			a.Fatalf("seed %d, op %d: refused\n%s", a.seed, a.done, describe(ops))
		}
		a.done += len(ops)
		return
	}
	if err != nil {
		a.Fatalf("model: %v", err)
	}
	a.note(ops, got)
	for i := range ops {
		if text := a.difference(&ops[i], &got[i], &want[i]); text != "" {
			a.Errorf("seed %d, op %d of %d: %s\n got %s\nwant %s", a.seed, i, len(ops), text, show(&got[i]), show(&want[i]))
		}
		buckets[i].learn(&ops[i], &got[i], &want[i])
	}
	a.done += len(ops)
}

// difference names the first figure in which two answers differ.
func (a *agreement) difference(op *store.Op, got, want *store.Grant) string {
	switch {
	case op.How <= store.Add && got.OK != want.OK, (op.How == store.Peek || op.How >= store.Reserve) && got.OK != want.OK:
		return "ok"
	case got.Reserved != want.Reserved:
		return "reserved"
	case got.Never != want.Never:
		return "never"
	case got.Skipped:
		return "skipped, though all buckets are of one key"
	case got.NowMS != want.NowMS:
		return "now, within one call"
	case got.Remaining != want.Remaining:
		return "remaining"
	case got.RetryMS != want.RetryMS:
		return "retry"
	case got.ResetMS != want.ResetMS:
		return "reset"
	case got.Queue != want.Queue:
		return "queue"
	case got.Lease != want.Lease:
		return "lease"
	case got.Lease > 0 && (got.Generation != want.Generation || got.LeaseMS != want.LeaseMS):
		return "generation or life of the lease"
	case got.Out != want.Out:
		return "out"
	case !got.Limit.Same(want.Limit) || got.Limit.Revision != want.Limit.Revision:
		return "numbers used"
	}
	return ""
}

// note keeps the last calls, for the report.
func (a *agreement) note(ops []store.Op, grants []store.Grant) {
	const kept = 12
	lines := []string{describe(ops)}
	for i := range grants {
		lines = append(lines, "    -> "+show(&grants[i]))
	}
	if len(a.recent) == kept {
		a.recent = a.recent[1:]
	}
	a.recent = append(a.recent, strings.Join(lines, "\n"))
}

func describe(ops []store.Op) string {
	var lines []string
	for _, op := range ops {
		lines = append(lines, fmt.Sprintf("  %s/%s how %d cost %d queue %d want %d/%d pods max %d shadow %v notfresh %v later %v reports %v receipt %v reservation %x for %d | %s",
			op.Bucket.Key[len(op.Bucket.Key)-2:], op.Bucket.Rule, op.How, op.Cost, op.Queue, op.Want, op.Pods, op.MaxCost, op.Shadow, op.NotFresh, op.NextWindow, op.Reports, op.Receipt, op.Reservation[:3], op.TTLMS, op.Limit))
	}
	return strings.Join(lines, "\n")
}

func show(g *store.Grant) string {
	return fmt.Sprintf("ok %v never %v remaining %d retry %d reset %d queue %d lease %d of %d for %d out %d now %d reserved %d | %s",
		g.OK, g.Never, g.Remaining, g.RetryMS, g.ResetMS, g.Queue, g.Lease, g.Generation, g.LeaseMS, g.Out, g.NowMS, g.Reserved, g.Limit)
}
