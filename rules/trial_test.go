package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
)

func candidate(t testing.TB, text string) rules.Candidate {
	t.Helper()
	return rules.Candidate{Rule: mustRule(t, text), Stage: rules.StageCanary, Percent: 5, SinceMS: 7}
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	live := bucket("r", 100, 200)
	set := mustSet(t, live, override("r", "k", `'burst':900`), override("r", "w*", `'rate':5`))
	set.Candidates = []rules.Candidate{candidate(t, strings.Replace(bucket("r", 50, 60), "'id'", "'mode':'shadow','id'", 1))}
	s := mustCompile(t, nil, set, 10, start)
	trial := s.Rule("r").Trial()
	if trial == nil || trial.Stage != rules.StageCanary || trial.Percent != 5 || trial.SinceMS != 7 {
		t.Fatalf("got %+v", trial)
	}
	if id, other := trial.Rule.BucketRule(), s.Rule("r").BucketRule(); id != "r~candidate" || other != "r" || trial.Rule.Shadow() || trial.Rule.ID() != "r" {
		t.Errorf("buckets of %q and %q, shadow %v", id, other, trial.Rule.Shadow())
	}
	on := func(s *rules.Snapshot, key string) string {
		t.Helper()
		lim, _ := s.Rule("r").Trial().Rule.Effective(key, start)
		return lim.String()
	}
	for key, want := range map[string]string{"x": "50 per 1000ms burst 60 @20", "k": "50 per 1000ms burst 900 @20", "wx": "5 per 1000ms burst 60 @20"} {
		if got := on(s, key); got != "token_bucket "+want {
			t.Errorf("%s has %s on trial, want %s", key, got, want)
		}
	}
	// Its numbers follow those it had; made anew, they are above them.
	s = mustCompile(t, s, set, 11, start)
	if got := on(s, "x"); got != "token_bucket 50 per 1000ms burst 60 @20" {
		t.Errorf("unchanged: %s", got)
	}
	with := set.Candidates
	set.Candidates = nil
	s = mustCompile(t, s, set, 12, start)
	if s.Rule("r").Trial() != nil || effective(s, "r", "x", start) != "100/200@20" {
		t.Errorf("dropped: %+v, the live rule has %s", s.Rule("r").Trial(), effective(s, "r", "x", start))
	}
	set.Candidates = with
	s = mustCompile(t, s, set, 13, start)
	if got := on(s, "x"); got != "token_bucket 50 per 1000ms burst 60 @26" {
		t.Errorf("made anew: %s", got)
	}
}

func TestCandidateOfAnotherAlgorithm(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("r", 100, 200), override("r", "a", `'burst':900`), override("r", "b*", `'rate':5`), override("r", "c", `'max_cost':3`))
	set.Candidates = []rules.Candidate{candidate(t, `{'id':'r','match':{'a':'b'},'identity':'k','algorithm':'fixed_window','limit':5,'window_s':60}`)}
	s, problems := rules.Compile(nil, set, 10, start)
	want := `candidate.overrides: 2 overrides of the rule do not fit the candidate, whose own numbers hold there: "a", "b*"; change them or the candidate`
	if got := lines(problems); got != want || !problems[0].Warning || problems[0].Rule != "r" {
		t.Errorf("got %s", got)
	}
	for key, most := range map[string]int64{"a": 1, "bx": 1, "c": 3} {
		lim, cost := s.Rule("r").Trial().Rule.Effective(key, start)
		if lim.Capacity != 5 || cost != most {
			t.Errorf("%s has %s and max_cost %d on trial, want the candidate's 5 and %d", key, lim, cost, most)
		}
	}
}

func TestCandidatesRefused(t *testing.T) {
	t.Parallel()
	good := bucket("r", 1, 1)
	for _, tt := range []struct {
		name string
		edit func(*rules.Candidate)
		want string
	}{
		{"another domain", func(k *rules.Candidate) { k.Rule.Domain = "d" }, `candidate.domain: the candidate is in domain "d", the live rule in "default"; a rule that matches or counts otherwise is another rule: give it its own id and mode shadow`},
		{"another match", func(k *rules.Candidate) { k.Rule.Match = map[string]string{"a": "c"} }, "candidate.match: is not that of the live rule; a rule that matches"},
		{"another identity", func(k *rules.Candidate) { k.Rule.Identity = []string{"ip"} }, "candidate.identity: is not that of the live rule"},
		{"a fault", func(k *rules.Candidate) { k.Rule.Rate = -1 }, "candidate.rate: -1 is below 1; raise it"},
		{"no stage", func(k *rules.Candidate) { k.Stage = "" }, `candidate.stage: "" is none of shadow, canary`},
		{"no percent", func(k *rules.Candidate) { k.Percent = 0 }, "candidate.percent: 0 is not from 1 to 100"},
		{"no rule", func(k *rules.Candidate) { k.Rule.ID = "none" }, `id: there is no rule "none" that it could be a candidate of`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := mustSet(t, good, bucket("s", 1, 1))
			bad := candidate(t, good)
			tt.edit(&bad)
			set.Candidates = []rules.Candidate{bad, candidate(t, bucket("s", 2, 2))}
			s, problems := rules.Compile(nil, set, 1, start)
			if got := lines(problems); !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if s.Rule("r").Trial() != nil || s.Rule("s").Trial() == nil || effective(s, "r", "x", start) != "1/1@2" {
				t.Error("it is not skipped alone")
			}
		})
	}
	set := mustSet(t, `{'id':'r','match':{'a':'b'},'action':'deny'}`)
	set.Candidates = []rules.Candidate{candidate(t, `{'id':'r','match':{'a':'b'},'action':'deny'}`)}
	if _, problems := rules.Compile(nil, set, 1, start); !strings.HasPrefix(lines(problems), "candidate.action: the live rule has action deny, which counts nothing to compare with") {
		t.Errorf("got %s", lines(problems))
	}
}

func TestResetsGiveNumbersAnew(t *testing.T) {
	t.Parallel()
	end := start.Add(time.Hour)
	set := mustSet(t, bucket("r", 1, 2), `{'id':'two','match':{'a':'b'},'identity':['k','l'],'algorithm':'token_bucket','rate':1,'burst':2}`,
		`{'id':'s','match':{'a':'b'},'identity':'k','algorithm':'token_bucket','rate':3,'burst':4}`, `{'id':'deny','match':{'a':'b'},'action':'deny'}`,
		override("r", "own", `'burst':9`), override("r", "p*", `'burst':8,'expires_at':'`+end.Format(time.RFC3339)+`'`))
	set.Candidates = []rules.Candidate{candidate(t, bucket("r", 7, 7))}
	s := mustCompile(t, nil, set, 10, start)
	pointers := func(s *rules.Snapshot, id, key string) []any {
		lim, _ := s.Rule(id).Effective(key, start)
		out := []any{lim}
		if trial := s.Rule(id).Trial(); trial != nil {
			lim, _ := trial.Rule.Effective(key, start)
			out = append(out, lim)
		}
		return out
	}
	for i, tt := range []struct {
		ref     rules.Ref
		id, key string
		want    string
		anew    bool
	}{
		{rules.Ref{Rule: "r", Key: []string{"x"}}, "r", "x", "1/2@%", true},
		{rules.Ref{Rule: "r", Key: []string{"x"}}, "r", "y", "1/2@20", false},
		{rules.Ref{Rule: "r", Key: []string{"own"}}, "r", "own", "1/9@%", true},
		{rules.Ref{Rule: "r", Key: []string{"px"}}, "r", "px", "1/8@%", true},
		{rules.Ref{Rule: "r", Key: []string{"px"}}, "r", "py", "1/8@20", false},
		{rules.Ref{Rule: "r", Key: []string{"z"}}, "s", "z", "3/4@20", false},
		{rules.Ref{Key: []string{"z"}}, "s", "z", "3/4@%", true},
		{rules.Ref{Key: []string{"z"}}, "r", "z", "1/2@%", true},
		{rules.Ref{Key: []string{"z", "z"}}, "two", rules.Key([]string{"z", "z"}), "1/2@%", true},
		{rules.Ref{Rule: "none", Key: []string{"z"}}, "two", rules.Key([]string{"z", "w"}), "1/2@20", false},
	} {
		before, revision := pointers(s, tt.id, tt.key), int64(11+i)
		set.Resets = []rules.Ref{tt.ref}
		s = mustCompile(t, s, set, revision, start)
		want := strings.Replace(tt.want, "%", itoa(2*revision), 1)
		if got := effective(s, tt.id, tt.key, start); got != want {
			t.Errorf("%d: %s of %s has %s, want %s", i, tt.key, tt.id, got, want)
		}
		for j, pointer := range pointers(s, tt.id, tt.key) {
			if (pointer != before[j]) != tt.anew {
				t.Errorf("%d: %s of %s: other numbers %v, want %v", i, tt.key, tt.id, pointer != before[j], tt.anew)
			}
		}
	}
	// It is remembered, ends as the pattern does, and is of one compilation only.
	set.Resets = nil
	was := effective(s, "r", "px", start)
	s = mustCompile(t, s, set, 40, start)
	if got := effective(s, "r", "px", start) + " " + effective(s, "r", "px", end); got != was+" 1/2@81" {
		t.Errorf("after the reset: %s, had %s", got, was)
	}
}

// Resets beyond what is remembered give the rule itself new numbers.
func TestResetsAreBounded(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("r", 1, 2), override("r", "p*", `'burst':8`))
	s := mustCompile(t, nil, set, 1, start)
	for i := range rules.MaxTombstones + 1 {
		set.Resets = append(set.Resets, rules.Ref{Rule: "r", Key: []string{"k" + itoa(int64(i))}})
	}
	s = mustCompile(t, s, set, 2, start)
	for key, want := range map[string]string{"k0": "1/2@4", "k10000": "1/2@4", "other": "1/2@4", "px": "1/8@4"} {
		if got := effective(s, "r", key, start); got != want {
			t.Errorf("%s has %s, want %s", key, got, want)
		}
	}
}
