package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
)

// sink takes reports as long as it is told to.
type sink struct {
	mu    sync.Mutex // guards what follows
	err   error
	knows bool
	got   []fleet.Report
	hang  bool
}

func (s *sink) Report(ctx context.Context, r fleet.Report) (fleet.Receipt, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return fleet.Receipt{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r)
	if s.err != nil {
		return fleet.Receipt{}, s.err
	}
	known := s.knows
	s.knows = true
	return fleet.Receipt{Known: known}, nil
}

func (s *sink) set(change func(*sink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// told is how many slices each report had, since the last call.
func (s *sink) told() (slices []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.got {
		n := 0
		for _, t := range r.Trials {
			n += len(t.Slices)
		}
		slices = append(slices, n)
	}
	s.got = nil
	return slices
}

// Slices go until they are acknowledged, and again to who has forgotten them.
func TestReporter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to, log := &sink{}, &bytes.Buffer{}
		began := time.Now().Truncate(10 * time.Second)
		build := func(sinceMS int64) fleet.Report { // one slice each 10 s, of three minutes
			var list []candidate.Slice
			for at := began; !at.Add(10 * time.Second).After(time.Now()); at = at.Add(10 * time.Second) {
				if at.UnixMilli() >= sinceMS && time.Since(at) <= 3*time.Minute+10*time.Second {
					list = append(list, slice(at, 1))
				}
			}
			return fleet.Report{Pod: "a", Trials: trial("x", 1, list...)}
		}
		r, err := fleet.NewReporter(fleet.ReporterConfig{Sink: to, Build: build, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		r.Start()
		defer r.Close()
		time.Sleep(65 * time.Second)
		told := to.told()
		if len(told) < 6 || len(told) > 8 || told[0] != 0 {
			t.Errorf("in 65 s there were reports of %v slices", told)
		}
		for _, n := range told[1:] {
			if n > 3 {
				t.Errorf("reports of %v slices: some went again without need", told)
			}
		}
		to.set(func(s *sink) { s.err = errors.New("away") })
		time.Sleep(60 * time.Second)
		to.told()
		to.set(func(s *sink) { s.err = nil })
		time.Sleep(12 * time.Second)
		if told := to.told(); told[0] < 6 {
			t.Errorf("after a minute without answer reports had %v slices", told)
		}
		to.set(func(s *sink) { s.knows = false })
		time.Sleep(12 * time.Second)
		told = to.told()
		if len(told) < 2 || told[0] > 3 || told[1] < 12 {
			t.Errorf("to who knows us no more went reports of %v slices", told)
		}
		to.set(func(s *sink) { s.hang = true })
		time.Sleep(time.Minute)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		r.Start() // closed: nothing
		if n := strings.Count(log.String(), "does not take"); n != 2 || strings.Count(log.String(), "again") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// hard are slices of the last minute in which the candidate denies a tenth.
func hard(now time.Time, denied int64) (out []candidate.Slice) {
	end := now.Truncate(10 * time.Second)
	for i := 9; i >= 0; i-- {
		s := candidate.Slice{StartMS: end.Add(-time.Duration(i) * 10 * time.Second).UnixMilli()}
		for k := range int64(40) {
			key := candidate.KeyCount{Key: fmt.Sprintf("k%02d", k), Count: candidate.Count{Checks: 25}}
			if k < 4 {
				key.CandidateDenied = denied
			}
			s.Keys = append(s.Keys, key)
			s.Checks, s.CandidateDenied = s.Checks+25, s.CandidateDenied+key.CandidateDenied
		}
		out = append(out, s)
	}
	return out
}

func body(burst int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"id":"a","match":{"plan":"free"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":%d}`, burst))
}

// A canary that denies too much goes back to stage shadow, in a real database, by
// reports of pods.
func TestSupervisorStopsACanary(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "rules.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	by := rulestore.Author{Who: "kim"}
	if _, err := store.Apply(t.Context(), by,
		rulestore.Change{Action: rulestore.ActionPut, Body: body(10)},
		rulestore.Change{Action: rulestore.ActionPropose, Body: body(5), IfMatch: 1},
		rulestore.Change{Action: rulestore.ActionCanary, Rule: "a", Percent: 10, IfMatch: 2}); err != nil {
		t.Fatal(err)
	}
	list := func() []rulestore.Rule {
		set, err := store.Whole(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		return set.Rules
	}
	since := list()[0].Candidate.Since.UnixMilli()
	r := fleet.NewRegistry(fleet.RegistryConfig{})
	log := new(lockedBuffer)
	s, err := fleet.NewSupervisor(fleet.SupervisorConfig{
		Rules: list, Trials: r.Trials, Writer: store, Every: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Trial("b"); rulestore.CodeOf(err) != rulestore.NotFound {
		t.Errorf("a rule that is not there: %v", err)
	}
	// Counts of the trial before this one are not of it.
	report(t, r, fleet.Report{Pod: "a", Trials: trial("a", since-1, hard(time.Now(), 25)...)})
	s.Start()
	s.Start()
	defer s.Close()
	if ok, why := s.Proven("a"); ok || why == "" {
		t.Errorf("proven without a report: %s", why)
	}
	report(t, r, fleet.Report{Pod: "a", Trials: trial("a", since, hard(time.Now(), 0)...)})
	if ok, why := s.Proven("a"); !ok {
		t.Errorf("not proven: %s", why)
	}
	report(t, r, fleet.Report{Pod: "a", Trials: trial("a", since, hard(time.Now(), 25)...)})
	if verdict, hardest, err := s.Trial("a"); err != nil || len(hardest) != 4 || hardest[0].Key != "k00" || verdict.CandidateDenied == 0 {
		t.Errorf("%+v, %+v, %v", verdict, hardest, err)
	}
	deadline := time.Now().Add(20 * time.Second)
	row := list()[0]
	for tick := time.NewTicker(5 * time.Millisecond); row.Candidate.Stage != rulestore.StageShadow; row = list()[0] {
		if time.Now().After(deadline) {
			t.Fatalf("not stopped: %+v", row)
		}
		<-tick.C
	}
	if row.Candidate.Body == nil || row.Candidate.Percent != 0 || row.Version != 4 {
		t.Errorf("got %+v", row)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	entries, err := store.Audit(t.Context(), rulestore.AuditFilter{Who: "tallygate control"})
	if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Why, "canary stopped: in three slices") {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if !strings.Contains(log.String(), "stopped a canary") || strings.Contains(log.String(), "ERROR") {
		t.Errorf("log:\n%s", log)
	}
}

// writer fails, and counts how often it was asked.
type writer struct {
	mu    sync.Mutex
	tries int // guarded by mu
	err   error
}

func (w *writer) Apply(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries++
	return rulestore.Applied{}, w.err
}

func (w *writer) DryRun(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	panic("not asked")
}

// It tries until the database takes it, and says so once. Candidates in stage shadow
// are left alone.
func TestSupervisorWithoutADatabase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		stage       rulestore.Stage
		err         error
		tries, says int
	}{
		{"away", rulestore.StageCanary, errors.New("connection refused"), 12, 1},
		{"changed meanwhile", rulestore.StageCanary, &rulestore.Error{Code: rulestore.Conflict}, 12, 0},
		{"refused", rulestore.StageCanary, &rulestore.Error{Code: rulestore.Invalid}, 12, 1},
		{"in shadow", rulestore.StageShadow, nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, log := &writer{err: tt.err}, &bytes.Buffer{}
				s, err := fleet.NewSupervisor(fleet.SupervisorConfig{
					Rules: func() []rulestore.Rule {
						return []rulestore.Rule{{ID: "b"}, {ID: "a", Version: 3, Candidate: rulestore.Candidate{Body: body(1), Stage: tt.stage}}}
					},
					Trials: func(rule string, _ int64) []candidate.Trial { return trial(rule, 1, hard(time.Now(), 25)...) },
					Writer: w, Log: slog.New(slog.NewTextHandler(log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				s.Start()
				time.Sleep(time.Minute + time.Second)
				_ = s.Close()
				_ = s.Close()
				s.Start()
				if says := strings.Count(log.String(), "\n"); w.tries != tt.tries || says != tt.says {
					t.Errorf("%d tries, want %d; log:\n%s", w.tries, tt.tries, log)
				}
			})
		})
	}
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	if _, err := fleet.NewReporter(fleet.ReporterConfig{}); err == nil {
		t.Error("a reporter without a sink")
	}
	if _, err := fleet.NewSupervisor(fleet.SupervisorConfig{}); err == nil {
		t.Error("a supervisor without rules")
	}
	if _, err := fleet.NewClient(fleet.ClientConfig{URL: "ftp://x"}); err == nil {
		t.Error("a client of ftp")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
