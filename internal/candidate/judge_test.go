package candidate_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/candidate"
)

// now is 15 s after the end of slice 100: the window is slices 95 to 100.
const now = 101*candidate.SliceMS + candidate.LateMS

// slice is one of evenly used keys, each with a part of the counts.
func slice(number int64, keys int, checks, live, denied int64) candidate.Slice {
	s := candidate.Slice{StartMS: number * candidate.SliceMS, Count: candidate.Count{Checks: checks, LiveDenied: live, CandidateDenied: denied}}
	part := func(n int64, i int) int64 { return n*int64(i+1)/int64(keys) - n*int64(i)/int64(keys) }
	for i := range min(keys, candidate.MaxKeys) {
		s.Keys = append(s.Keys, candidate.KeyCount{
			Key:   fmt.Sprintf("key-%02d", i),
			Count: candidate.Count{Checks: part(checks, i), LiveDenied: part(live, i), CandidateDenied: part(denied, i)},
		})
	}
	return s
}

// loud is a slice of which one key has checks, all denied by the candidate, and 50
// others have the rest, which passes.
func loud(number, checks, ofOne int64) candidate.Slice {
	s := slice(number, 50, checks-ofOne, 0, 0)
	s.Checks, s.CandidateDenied = checks, ofOne
	s.Keys = append(s.Keys, candidate.KeyCount{Key: "loud", Count: candidate.Count{Checks: ofOne, CandidateDenied: ofOne}})
	return s
}

// run is slices of the same counts from one to another.
func run(from, to int64, each func(number int64) candidate.Slice) (out []candidate.Slice) {
	for n := from; n <= to; n++ {
		out = append(out, each(n))
	}
	return out
}

func even(keys int, checks, live, denied int64) func(int64) candidate.Slice {
	return func(number int64) candidate.Slice { return slice(number, keys, checks, live, denied) }
}

func TestJudge(t *testing.T) {
	t.Parallel()
	quiet := even(40, 1000, 10, 10)
	for _, tt := range []struct {
		name   string
		slices []candidate.Slice
		want   candidate.State
		says   string
	}{
		{"nothing yet", nil, candidate.Collecting, "no check"},
		{"half a minute", run(98, 100, quiet), candidate.Collecting, "30 s"},
		{"a minute in which both deny the same", run(95, 100, quiet), candidate.Proven, "of 6000 checks of 40 keys"},
		{"twice as many, exactly", run(95, 100, even(40, 1000, 10, 20)), candidate.Proven, ""},
		{"more than twice as many", run(95, 100, even(40, 1000, 10, 21)), candidate.Stop, "2.1 % of checks"},
		{"live denies nothing, 0.5 %", run(95, 100, even(40, 1000, 0, 5)), candidate.Proven, ""},
		{"live denies nothing, 0.6 %", run(95, 100, even(40, 1000, 0, 6)), candidate.Stop, "three slices"},
		{"before a minute has passed", run(98, 100, even(40, 1000, 0, 50)), candidate.Stop, "three slices"},
		{"two slices only", slices.Concat(run(95, 98, quiet), run(99, 100, even(40, 1000, 10, 300))), candidate.Proven, ""},
		{"three in the middle", slices.Concat(run(95, 95, quiet), run(96, 98, even(40, 1000, 10, 300)), run(99, 100, quiet)), candidate.Stop, ""},
		{"three with a good one between", slices.Concat(run(95, 96, even(40, 1000, 0, 90)), run(97, 97, quiet), run(98, 98, even(40, 1000, 0, 90)), run(99, 100, quiet)), candidate.Proven, ""},
		{"three with a silent one between", slices.Concat(run(95, 96, even(40, 1000, 0, 90)), run(98, 98, even(40, 1000, 0, 90)), run(99, 100, quiet)), candidate.Proven, ""},
		{"one of three ended a moment ago", slices.Concat(run(95, 98, quiet), run(99, 101, even(40, 1000, 0, 90))), candidate.Proven, ""},
		{"three before the last minute", slices.Concat(run(80, 94, even(40, 1000, 0, 90)), run(95, 100, quiet)), candidate.Proven, ""},
		{"too few checks to stop by", run(95, 100, even(40, 160, 0, 60)), candidate.NotProven, "960 checks"},
		{"too few keys to stop by", run(95, 100, even(19, 1000, 0, 300)), candidate.NotProven, "19 keys"},
		{"at once", slices.Concat(run(95, 99, quiet), run(100, 100, even(40, 200, 0, 101))), candidate.Stop, "of 200 checks"},
		{"at once, in a slice that has not ended", slices.Concat(run(95, 101, quiet), run(102, 102, even(40, 300, 0, 280))), candidate.Stop, "93.3 %"},
		{"at once, with nothing before", run(102, 102, even(40, 200, 20, 101)), candidate.Stop, "10.0 %"},
		{"half, exactly", run(102, 102, even(40, 200, 0, 100)), candidate.Collecting, ""},
		{"199 checks", run(102, 102, even(40, 199, 0, 199)), candidate.Collecting, ""},
		{"at once over slices of a quiet rule", run(98, 101, even(40, 60, 0, 40)), candidate.Stop, "of 240 checks"},
		{"both deny nearly everything", run(95, 102, even(40, 1000, 995, 997)), candidate.Proven, ""},
		{"one customer alone, a third of the traffic", run(95, 100, func(n int64) candidate.Slice { return loud(n, 1500, 500) }), candidate.Stop, "20.0 % of checks"},
		{"one customer alone does not stop at once", run(102, 102, func(n int64) candidate.Slice { return loud(n, 2000, 1700) }), candidate.Collecting, ""},
		{"one customer alone is not a thousand checks", run(95, 100, func(n int64) candidate.Slice { return loud(n, 10_000, 9_900) }), candidate.NotProven, "750 checks"},
		{"four customers are nobody", run(95, 100, even(4, 10_000, 0, 10_000)), candidate.NotProven, "0 checks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := candidate.Judge(true, tt.slices, now)
			if got.State != tt.want || !strings.Contains(got.Why, tt.says) {
				t.Errorf("got %+v, want %s, %q", got, tt.want, tt.says)
			}
			shadow := candidate.Judge(false, tt.slices, now)
			want := tt.want
			if want == candidate.Stop {
				want = candidate.NotProven
			}
			if shadow.State != want || shadow.Why != got.Why {
				t.Errorf("in shadow got %+v, want %s", shadow, want)
			}
		})
	}
}

// The worked example of docs/control-plane.md: a key of 900 of 1,000 checks counts as
// 25, a fifth of the 125 that are then left.
func TestTheWorkedExample(t *testing.T) {
	t.Parallel()
	example := func(others int64) func(int64) candidate.Slice {
		return func(n int64) candidate.Slice {
			s := slice(n, 50, others, 2, 2)
			s.Checks, s.CandidateDenied = s.Checks+900, s.CandidateDenied+900
			s.Keys = append(s.Keys, candidate.KeyCount{Key: "acct_7Q2", Count: candidate.Count{Checks: 900, CandidateDenied: 900}})
			return s
		}
	}
	got := candidate.Judge(true, run(95, 100, example(100)), now)
	if got.State != candidate.NotProven || !strings.HasPrefix(got.Why, "750 checks") || got.Checks != 6000 || got.Keys != 51 {
		t.Errorf("got %+v", got)
	}
	if got := candidate.Judge(true, run(95, 100, example(200)), now); got.State != candidate.Stop || !strings.Contains(got.Why, "20.8 % of checks and the live version 0.8 %") {
		t.Errorf("with 1,500 checks: %+v", got)
	}
}

func drawSlices(t *rapid.T, same bool) []candidate.Slice {
	var out []candidate.Slice
	for n := int64(93); n <= 102; n++ {
		if rapid.IntRange(0, 9).Draw(t, "silent") == 0 {
			continue
		}
		s := candidate.Slice{StartMS: n * candidate.SliceMS}
		for i := range rapid.IntRange(0, 40).Draw(t, "keys") {
			var c candidate.Count
			c.Checks = rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(0, 5000)).Draw(t, "checks")
			c.LiveDenied = rapid.Int64Range(0, c.Checks).Draw(t, "live")
			if c.CandidateDenied = c.LiveDenied; !same {
				c.CandidateDenied = rapid.Int64Range(0, c.Checks).Draw(t, "candidate")
			}
			s.Keys = append(s.Keys, candidate.KeyCount{Key: fmt.Sprint(i), Count: c})
			s.Checks, s.LiveDenied, s.CandidateDenied = s.Checks+c.Checks, s.LiveDenied+c.LiveDenied, s.CandidateDenied+c.CandidateDenied
		}
		// Keys that the sketch does not name.
		more := rapid.Int64Range(0, 500).Draw(t, "more")
		denied := rapid.Int64Range(0, more).Draw(t, "more denied")
		s.Checks, s.LiveDenied, s.CandidateDenied = s.Checks+more, s.LiveDenied+denied, s.CandidateDenied+denied
		out = append(out, s)
	}
	return out
}

func TestACandidateEqualToTheLiveVersionNeverStops(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := now + rapid.Int64Range(-20_000, 20_000).Draw(t, "at")
		if v := candidate.Judge(true, drawSlices(t, true), at); v.State == candidate.Stop {
			t.Fatalf("got %+v", v)
		}
	})
}

func TestMoreDenialsNeverEndAStop(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := drawSlices(t, false)
		before := candidate.Judge(true, list, now)
		for i := range list {
			for j := range list[i].Keys {
				key := &list[i].Keys[j]
				more := rapid.Int64Range(0, key.Checks-key.CandidateDenied).Draw(t, "more denials")
				key.CandidateDenied += more
				list[i].CandidateDenied += more
			}
		}
		after := candidate.Judge(true, list, now)
		if before.State == candidate.Stop && after.State != candidate.Stop {
			t.Fatalf("before %+v, after %+v", before, after)
		}
	})
}

// One key cannot stop a candidate at once, whatever it does.
func TestOneKeyAloneNeverStopsAtOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ofOne := rapid.Int64Range(0, 1_000_000).Draw(t, "of one")
		others := rapid.Int64Range(0, 3000).Draw(t, "of others")
		v := candidate.Judge(true, []candidate.Slice{loud(102, others+ofOne, ofOne)}, now)
		if v.State == candidate.Stop {
			t.Fatalf("got %+v", v)
		}
	})
}

// Counts that make no sense must not make the verdict nonsense.
func FuzzJudge(f *testing.F) {
	f.Add(int64(now), int64(95), int64(10), int64(20), int64(30), int64(40), true)
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(-1), int64(-1), int64(math.MaxInt64), int64(5), false)
	f.Fuzz(func(t *testing.T, at, number, checks, live, denied, ofKey int64, canary bool) {
		list := run(0, 7, func(n int64) candidate.Slice {
			return candidate.Slice{
				StartMS: (number + n) * candidate.SliceMS, Count: candidate.Count{Checks: checks, LiveDenied: live, CandidateDenied: denied},
				Keys: []candidate.KeyCount{{Key: "a", Count: candidate.Count{Checks: ofKey, CandidateDenied: ofKey}}},
			}
		})
		if v := candidate.Judge(canary, list, at); v.Why == "" || v.State == candidate.Stop && !canary {
			t.Errorf("got %+v", v)
		}
	})
}

func TestMerge(t *testing.T) {
	t.Parallel()
	count := func(checks, live, denied int64) candidate.Count {
		return candidate.Count{Checks: checks, LiveDenied: live, CandidateDenied: denied}
	}
	many := candidate.Slice{StartMS: 20_000, Count: count(1000, 0, 0)}
	for i := range candidate.MaxKeys {
		many.Keys = append(many.Keys, candidate.KeyCount{Key: fmt.Sprintf("m%02d", i), Count: count(2, 0, 0)})
	}
	got := candidate.Merge([]candidate.Trial{
		{Slices: []candidate.Slice{many, {StartMS: 10_000, Count: count(5, 1, 2), Keys: []candidate.KeyCount{{Key: "a", Count: count(5, 1, 2)}}}}},
		{Slices: []candidate.Slice{
			{StartMS: 10_000, Count: count(7, 2, 1), Keys: []candidate.KeyCount{{Key: "b", Count: count(4, 0, 0)}, {Key: "a", Count: count(3, 2, 1)}}},
			{StartMS: 20_000, Count: count(1, 0, 1), Keys: []candidate.KeyCount{{Key: "z", Count: count(1, 0, 1)}, {Key: "m63", Count: count(1, 0, 0)}}},
		}},
	})
	if len(got) != 2 || got[0].StartMS != 10_000 || got[0].Count != count(12, 3, 3) || got[1].Count != count(1001, 0, 1) {
		t.Fatalf("got %+v", got)
	}
	if want := []candidate.KeyCount{{Key: "a", Count: count(8, 3, 3)}, {Key: "b", Count: count(4, 0, 0)}}; !slices.Equal(got[0].Keys, want) {
		t.Errorf("got keys %v, want %v", got[0].Keys, want)
	}
	if len(got[1].Keys) != candidate.MaxKeys || got[1].Keys[0].Key != "m63" || got[1].Keys[0].Checks != 3 || got[1].Keys[63].Key != "m62" {
		t.Errorf("got keys %v", got[1].Keys)
	}
	if candidate.Merge(nil) == nil {
		t.Error("nothing merges to nil: JSON would show null")
	}
	hardest := candidate.Hardest([]candidate.Slice{
		{Keys: []candidate.KeyCount{{Key: "a", Count: count(9, 1, 4)}, {Key: "b", Count: count(9, 0, 2)}, {Key: "c", Count: count(9, 9, 9)}}},
		{Keys: []candidate.KeyCount{{Key: "b", Count: count(9, 0, 2)}, {Key: "d", Count: count(9, 0, 1)}}},
	}, 2)
	if want := []candidate.KeyCount{{Key: "b", Count: count(18, 0, 4)}, {Key: "a", Count: count(9, 1, 4)}}; !slices.Equal(hardest, want) {
		t.Errorf("hardest %v, want %v", hardest, want)
	}
}
