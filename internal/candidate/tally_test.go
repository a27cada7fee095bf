package candidate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/candidate"
)

// start is the start of a slice.
const start = int64(1_790_035_200_000)

// A key with more than a fiftieth of the checks is found among many thousands, its
// counts are never above the truth, and the sums are exact.
func TestTally_sketch(t *testing.T) {
	t.Parallel()
	tally, draw := candidate.NewTally(), rand.New(rand.NewPCG(1, 2))
	want := candidate.Count{}
	truth := map[string]candidate.Count{}
	for i := range 100_000 {
		key := fmt.Sprintf("key_%d", draw.IntN(50_000))
		if i%45 == 0 {
			key = "hot"
		}
		live, next := draw.IntN(10) == 0, draw.IntN(3) == 0
		tally.Add("r", 7, start+int64(i%candidate.SliceMS), key, live, next)
		want, truth[key] = plus(want, live, next), plus(truth[key], live, next)
	}
	got := tally.Since(0, start+candidate.SliceMS)
	if len(got) != 1 || got[0].Rule != "r" || got[0].SinceMS != 7 || len(got[0].Slices) != 1 {
		t.Fatalf("%+v, want one slice", got)
	}
	s := got[0].Slices[0]
	if s.StartMS != start || s.Count != want || len(s.Keys) != candidate.MaxKeys {
		t.Errorf("%d: %+v with %d keys, want %+v with %d", s.StartMS, s.Count, len(s.Keys), want, candidate.MaxKeys)
	}
	if !slices.ContainsFunc(s.Keys, func(k candidate.KeyCount) bool { return k.Key == "hot" }) {
		t.Error("a key with 1/45 of the checks was not found")
	}
	for _, k := range s.Keys {
		if is := truth[k.Key]; k.Checks > is.Checks || k.LiveDenied > is.LiveDenied || k.CandidateDenied > is.CandidateDenied {
			t.Errorf("%+v, in truth %+v", k, is)
		}
	}
}

func plus(c candidate.Count, live, next bool) candidate.Count {
	c.Checks++
	if live {
		c.LiveDenied++
	}
	if next {
		c.CandidateDenied++
	}
	return c
}

// Few keys are counted exactly, those with most checks first.
func TestTally_fewKeysAreExact(t *testing.T) {
	t.Parallel()
	tally := candidate.NewTally()
	for i := range candidate.MaxKeys {
		for range i + 1 {
			tally.Add("r", 1, start, fmt.Sprintf("k%02d", i), i%2 == 0, true)
		}
	}
	keys := tally.Since(start, start+candidate.SliceMS)[0].Slices[0].Keys
	for i, k := range keys {
		n := candidate.MaxKeys - 1 - i
		want := candidate.Count{Checks: int64(n + 1), CandidateDenied: int64(n + 1)}
		if n%2 == 0 {
			want.LiveDenied = want.Checks
		}
		if k.Key != fmt.Sprintf("k%02d", n) || k.Count != want {
			t.Fatalf("%d: %+v, want key %d with %+v", i, k, n, want)
		}
	}
}

// Slices are told once they have ended, and kept for three minutes.
func TestTally_slices(t *testing.T) {
	t.Parallel()
	tally := candidate.NewTally()
	add := func(atMS int64) { tally.Add("r", 1, atMS, "k", true, false) }
	starts := func(sinceMS, nowMS int64) (list []int64) {
		for _, trial := range tally.Since(sinceMS, nowMS) {
			for _, s := range trial.Slices {
				list = append(list, (s.StartMS-start)/candidate.SliceMS)
			}
		}
		return list
	}
	for i := range int64(4) {
		add(start + i*candidate.SliceMS)
	}
	for name, c := range map[string]struct {
		since, now int64
		want       []int64
	}{
		"the one under way is not":    {start, start + 4*candidate.SliceMS - 1, []int64{0, 1, 2}},
		"it is when it has ended":     {start, start + 4*candidate.SliceMS, []int64{0, 1, 2, 3}},
		"those from then on":          {start + 1, start + 3*candidate.SliceMS, []int64{1, 2}},
		"none before the first ended": {0, start + 1, nil},
	} {
		if got := starts(c.since, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	late := start + 3*candidate.SliceMS + candidate.Kept.Milliseconds()
	add(late)
	if got := starts(0, late+candidate.SliceMS); !slices.Equal(got, []int64{3, 21}) {
		t.Errorf("%v after three minutes more, want the last before and the new one", got)
	}
	add(start) // a clock that stepped back
	if got := starts(0, start+candidate.SliceMS); !slices.Equal(got, []int64{0}) {
		t.Errorf("%v after the clock stepped back, want the new one", got)
	}
}

// Another trial of a rule begins at nothing, and what is late for it is not counted.
func TestTally_anotherTrial(t *testing.T) {
	t.Parallel()
	tally := candidate.NewTally()
	tally.Add("r", 1, start, "old", true, true)
	tally.Add("r", 2, start, "new", false, true)
	tally.Add("r", 1, start, "late", true, true)
	got := tally.Since(0, start+candidate.SliceMS)
	if len(got) != 1 || got[0].SinceMS != 2 || got[0].Slices[0].Count != (candidate.Count{Checks: 1, CandidateDenied: 1}) || got[0].Slices[0].Keys[0].Key != "new" {
		t.Errorf("%+v, want the new trial's check only", got)
	}
}

// The number of trials is bounded; one that nobody can be told of any more makes room.
func TestTally_bounded(t *testing.T) {
	t.Parallel()
	tally := candidate.NewTally()
	for i := range candidate.MaxTrials + 10 {
		tally.Add(fmt.Sprintf("r%d", i), 1, start, "k", false, false)
	}
	if got := len(tally.Since(0, start+candidate.SliceMS)); got != candidate.MaxTrials {
		t.Errorf("%d trials, want %d", got, candidate.MaxTrials)
	}
	later := start + candidate.Kept.Milliseconds() + 1
	tally.Add("newcomer", 1, later, "k", false, false)
	if got := tally.Since(start+candidate.SliceMS, later+candidate.SliceMS); len(got) != 1 || got[0].Rule != "newcomer" {
		t.Errorf("%+v, want the newcomer", got)
	}
}

// Keys may be long and their bytes used again; they are told apart all the same.
func TestTally_keysAreItsOwn(t *testing.T) {
	t.Parallel()
	tally := candidate.NewTally()
	long := strings.Repeat("x", 4096)
	for _, key := range []string{long, long + "y", "short"} {
		tally.Add("r", 1, start, key, false, false)
	}
	keys := tally.Since(0, start+candidate.SliceMS)[0].Slices[0].Keys
	if len(keys) != 3 {
		t.Fatalf("%d keys, want 3", len(keys))
	}
	for _, k := range keys {
		if len(k.Key) > 256 {
			t.Errorf("%d bytes are kept of a key", len(k.Key))
		}
	}
}

// Counting does not allocate once the keys have been met, however they change.
func TestTally_allocs(t *testing.T) {
	tally := candidate.NewTally()
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("acct_%04d", i)
	}
	i := 0
	add := func() {
		tally.Add("r", 1, start+int64(i)*10, keys[i%len(keys)], false, true)
		i++
	}
	for range 30_000 { // over all slices once
		add()
	}
	if got := testing.AllocsPerRun(20_000, add); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// Any number of goroutines may add and ask; nothing is lost.
func TestTally_concurrent(t *testing.T) {
	t.Parallel()
	tally := candidate.NewTally()
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 1000 {
				tally.Add(fmt.Sprintf("r%d", i%3), 1, start, fmt.Sprintf("k%d", g), i%2 == 0, false)
				if i%100 == 0 {
					tally.Since(0, start+candidate.SliceMS)
				}
			}
		})
	}
	group.Wait()
	var sum candidate.Count
	for _, trial := range tally.Since(0, start+candidate.SliceMS) {
		sum.Checks += trial.Slices[0].Checks
		sum.LiveDenied += trial.Slices[0].LiveDenied
	}
	if sum.Checks != 8000 || sum.LiveDenied != 4000 {
		t.Errorf("%+v, want 8000 checks and 4000 denials", sum)
	}
}

func BenchmarkTally(b *testing.B) {
	tally := candidate.NewTally()
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("acct_%04d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tally.Add("r", 1, start, keys[i%len(keys)], false, true)
	}
}
