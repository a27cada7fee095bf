package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/openloop"
)

const (
	// rate is the pace of checks a second over all lanes.
	rate = 1000
	// lanes are what checks take in turn: open and closed rules on each shard, and
	// two of the tight key on the hurt one.
	lanes = 8

	deadline = 5 * time.Millisecond
	// backWithin is how long after a shard is back its answers are normal again: a
	// probe a second. topologyWithin is the same after a promotion.
	backWithin     = 1100 * time.Millisecond
	topologyWithin = 2 * time.Second
)

// idle is the cluster of this minute while nothing is wrong; the machine's own
// stalls are taken off.
type idle struct {
	p999, max time.Duration
	odd       float64 // part of the answers that were not normal all the same
	cpu       float64 // of one processor
}

// measure is the median of three short runs.
func (f *fixture) measure() idle {
	var p999, longest []time.Duration
	var odd, cpu []float64
	for range 3 {
		w := watch(f.primaries[:]...)
		r := openloop.Drive(rate, 300*time.Millisecond, f.ask)
		w.end()
		own, calm := w.own(r), w.calm(r)
		p999, longest = append(p999, own.Percentile(99.9)), append(longest, own.Max())
		odd = append(odd, float64(len(oddOf(calm).Calls))/float64(max(1, len(calm.Calls))))
		cpu = append(cpu, w.cpu.Seconds()/time.Since(r.Start).Seconds())
	}
	slices.Sort(p999)
	slices.Sort(longest)
	slices.Sort(odd)
	slices.Sort(cpu)
	return idle{p999: p999[1], max: longest[1], odd: odd[1], cpu: cpu[1]}
}

// ask is check number i of the load. Its outcome is shard/rule/kind.
func (f *fixture) ask(i int) string {
	lane, turn := i%lanes, i/lanes
	shard, rule, key := lane%shards, open, ""
	switch {
	case lane >= 2*shards:
		shard, rule, key = 0, tight, f.keys[0][0]
	case lane >= shards:
		rule = closed
	}
	if key == "" {
		key = f.keys[shard][turn%keysEach]
	}
	return fmt.Sprintf("%d/%s/%s", shard, rule, one(f.pod, check(key, rule)))
}

// part is the shard, the rule and the kind of a call.
func part(c openloop.Call) (shard, rule, kind string) {
	words := strings.SplitN(c.Outcome, "/", 3)
	return words[0], words[1], words[2]
}

// oddOf returns the calls without a normal answer.
func oddOf(r *openloop.Result) *openloop.Result {
	return r.Where(func(c openloop.Call) bool {
		_, _, kind := part(c)
		return kind != allow && kind != deny
	})
}

// of returns the calls of shards and rules; "" means all.
func of(r *openloop.Result, shard, rule string, kinds ...string) *openloop.Result {
	return r.Where(func(c openloop.Call) bool {
		s, u, k := part(c)
		return (shard == "" || s == shard) && (rule == "" || u == rule) && (len(kinds) == 0 || slices.Contains(kinds, k))
	})
}

// run is a load and what happened during it.
type run struct {
	*openloop.Result
	t *testing.T
	f *fixture
	w *witness
	// began is when the shard was away for sure, back when it was there again.
	began, back time.Time
	// moods are complaints that may be the machine's.
	moods []string
}

// during drives the load, lets fault happen after a moment of it and goes on for a
// while after fault returns. fault says by the run when it began and was over.
func (f *fixture) during(t *testing.T, after time.Duration, fault func(r *run)) *run {
	t.Helper()
	r := &run{t: t, f: f, w: watch(append(f.c.Replicas(), f.primaries[:]...)...)}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.Result = openloop.DriveUntil(rate, stop, f.ask)
	}()
	defer func() { // also when fault ends the test
		close(stop)
		<-done
		r.w.end()
		r.w.forget(f.hurt(), r.began, r.back)
		t.Logf("%s", r.Result)
		t.Logf("hurt shard: %s", of(r.Result, "0", ""))
	}()
	hold(300 * time.Millisecond)
	fault(r)
	hold(after)
	return r
}

// mood is a complaint that may be the machine's.
func (r *run) mood(format string, args ...any) {
	r.moods = append(r.moods, fmt.Sprintf(format, args...))
}

// quick: no check waits much longer than the deadline, whatever is broken, and the
// pod does not burn more than it did before.
func (r *run) quick() {
	own := r.w.own(r.Result)
	if got, most := own.Percentile(99.9), slack*(deadline+time.Millisecond)+r.f.idle.p999; got > most {
		r.mood("p99.9 of checks %s, want at most %s (idle %s)", got, most, r.f.idle.p999)
	}
	if got, most := own.Max(), slack*20*time.Millisecond+r.f.idle.max; got > most {
		r.mood("one check took %s, want at most %s (idle %s)", got, most, r.f.idle.max)
	}
	last, _ := r.Last()
	if got, most := r.w.cpu.Seconds()/last.Sub(r.Start).Seconds(), 2*r.f.idle.cpu+0.1; got > most {
		r.mood("the pod used %.2f of a processor, want at most %.2f (idle %.2f)", got, most, r.f.idle.cpu)
	}
}

// othersUnharmed: shards that nobody hurt give normal answers.
func (r *run) othersUnharmed() {
	rest := r.w.calm(r.Result).Where(func(c openloop.Call) bool { shard, _, _ := part(c); return shard != "0" })
	r.normal(rest, "of healthy shards")
}

// normal complains of answers of these calls that are not, unless the idle cluster
// gave some too.
func (r *run) normal(calls *openloop.Result, which string) {
	if len(calls.Calls) == 0 {
		r.t.Logf("NOT JUDGED: answers %s: the machine was never calm", which)
		return
	}
	odd := oddOf(calls)
	if n := len(odd.Calls); float64(n) > 3*r.f.idle.odd*float64(len(calls.Calls)) {
		last, _ := odd.Last()
		r.mood("%d of %d answers %s are not normal (idle %.2f %%), the last one %s after the fault: %s", n, len(calls.Calls), which, 100*r.f.idle.odd, last.Sub(r.back), odd)
	}
}

// closedShut: while the shard is away, closed rules admit nothing on it. A call due
// just before the shard came back may have met it.
func (r *run) closedShut() {
	r.t.Helper()
	away := r.Between(r.began, r.back.Add(-2*deadline))
	if got := of(away, "0", closed, allow, fallbackAllow); len(got.Calls) > 0 {
		r.t.Errorf("closed rules admitted without the store: %s", got)
	}
	if len(of(away, "0", closed).Calls) == 0 {
		r.t.Error("no check of a closed rule during the fault")
	}
}

// breaks: once the breaker is open nobody waits for the shard but a probe a second.
func (r *run) breaks() {
	from := r.began.Add(200 * time.Millisecond)
	waited := of(r.w.calm(r.Between(from, r.back)), "0", closed, refusedTimeout)
	if most := 2 + 2*r.back.Sub(from).Seconds(); float64(len(waited.Calls)) > most {
		r.mood("%d closed checks waited for a shard that is away, want at most %.0f", len(waited.Calls), most)
	}
}

// openBounded: inside one outage of d seconds an open rule admits on a key at most
// 2·(burst + rate·d), and not nothing.
func (r *run) openBounded() {
	r.t.Helper()
	d := r.back.Sub(r.began).Seconds()
	most := 2 * (tightBurst + tightRate*d)
	away := r.Between(r.began, r.back)
	if got := len(of(away, "0", tight, allow, fallbackAllow).Calls); float64(got) > most {
		r.t.Errorf("an open rule admitted %d of one key in an outage of %.2f s, want at most %.0f", got, d, most)
	}
	if got := of(away, "0", open, fallbackAllow); len(got.Calls) == 0 && d > 0.1 {
		r.t.Errorf("open rules passed nothing in an outage of %.2f s: %s", d, of(away, "0", open))
	}
}

// normalWithin: so long after the shard is back, its answers are normal; those by
// some rules only, if rules are named.
func (r *run) normalWithin(d time.Duration, rules ...string) {
	later := r.w.calm(r.Between(r.back.Add(d), time.Now())).Where(func(c openloop.Call) bool {
		shard, rule, _ := part(c)
		return shard == "0" && (len(rules) == 0 || slices.Contains(rules, rule))
	})
	r.normal(later, fmt.Sprintf("later than %s after the shard is back", d))
}

// judged runs a fault once, and where it complains of what may be the machine's
// mood, up to twice more: two of three decide.
func judged(t *testing.T, fault func(f *fixture) *run) {
	t.Helper()
	needSuite(t)
	var sad int
	for n := range 3 {
		var moods []string
		ok := t.Run(fmt.Sprintf("run %d", n+1), func(t *testing.T) {
			if r := fault(setup(t)); r != nil && len(r.moods) > 0 {
				moods = r.moods
				t.Logf("complains:\n  %s", strings.Join(moods, "\n  "))
			}
		})
		if len(moods) > 0 {
			sad++
		}
		if sad == 2 {
			t.Errorf("two runs complain, the last one of:\n  %s", strings.Join(moods, "\n  "))
		}
		if !ok || sad == 2 || n == 0 && sad == 0 {
			return
		}
	}
}
