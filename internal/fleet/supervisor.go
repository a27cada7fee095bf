package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// Defaults and bounds of a Supervisor.
const (
	// SuperviseEvery is how often canaries are judged.
	SuperviseEvery = 5 * time.Second
	// HardestKeys is how many keys Trial names.
	HardestKeys = 10
	// stopTimeout bounds the change that stops one.
	stopTimeout = 5 * time.Second
)

// supervisor is who stops canaries, in the audit.
const supervisor = "tallygate control"

// SupervisorConfig says what to judge. Rules, Trials and Writer are required.
type SupervisorConfig struct {
	// Rules returns the rules as they are now, which are not changed.
	Rules func() []rulestore.Rule
	// Trials returns what each pod counted of a trial; see [Registry.Trials].
	Trials func(rule string, sinceMS int64) []candidate.Trial
	// Writer stops a canary.
	Writer rulestore.Writer
	// Every is the time between two judgements; 0 means SuperviseEvery.
	Every time.Duration
	// Now is the clock by which slices begin, the database's; nil means time.Now.
	Now func() time.Time
	// Log is told of canaries that were stopped; nil means none.
	Log *slog.Logger
}

// Supervisor judges candidates, and stops canaries that deny too much: back to stage
// shadow, in which they go on counting and harm nobody.
//
//	NewSupervisor ─► Start (one goroutine) ─► Close
type Supervisor struct {
	cfg SupervisorConfig

	// Of the loop: the version of the row at which stopping a rule's canary failed, so
	// that it is logged once.
	failed map[string]int64

	loop loop.Loop
}

// NewSupervisor returns a supervisor. It starts nothing.
func NewSupervisor(cfg SupervisorConfig) (*Supervisor, error) {
	switch {
	case cfg.Rules == nil || cfg.Trials == nil || cfg.Writer == nil:
		return nil, errors.New("fleet: SupervisorConfig.Rules, Trials and Writer are required")
	case cfg.Every < 0:
		return nil, errors.New("fleet: SupervisorConfig.Every is negative")
	case cfg.Every == 0:
		cfg.Every = SuperviseEvery
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Supervisor{cfg: cfg, failed: map[string]int64{}}, nil
}

// Start begins to judge, until Close. Started twice or after Close, it does nothing.
func (s *Supervisor) Start() { s.loop.Start(s.run) }

// Close returns when nothing runs any more. Closed twice, it does nothing.
func (s *Supervisor) Close() error {
	s.loop.Close()
	return nil
}

func (s *Supervisor) run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.judgeAll(ctx)
		}
	}
}

// judgeAll stops the canaries that are to be stopped.
func (s *Supervisor) judgeAll(ctx context.Context) {
	canaries := map[string]bool{}
	for _, rule := range s.cfg.Rules() {
		if rule.Candidate.Body == nil || rule.Candidate.Stage != rulestore.StageCanary {
			continue
		}
		canaries[rule.ID] = true
		if verdict, _ := s.judge(&rule); verdict.State == candidate.Stop {
			s.stop(ctx, &rule, verdict)
		}
	}
	for id := range s.failed {
		if !canaries[id] {
			delete(s.failed, id)
		}
	}
}

// judge judges one candidate.
func (s *Supervisor) judge(rule *rulestore.Rule) (candidate.Verdict, []candidate.Slice) {
	slices := candidate.Merge(s.cfg.Trials(rule.ID, rule.Candidate.Since.UnixMilli()))
	canary := rule.Candidate.Stage == rulestore.StageCanary
	return candidate.Judge(canary, slices, s.cfg.Now().UnixMilli()), slices
}

// stop moves a canary back to stage shadow. Where the rule changed meanwhile, that is
// another trial, and the next round looks at it.
func (s *Supervisor) stop(ctx context.Context, rule *rulestore.Rule, verdict candidate.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	by := rulestore.Author{Who: supervisor, Why: "canary stopped: " + verdict.Why}
	applied, err := s.cfg.Writer.Apply(ctx, by, rulestore.Change{
		Action: rulestore.ActionCanary, Rule: rule.ID, IfMatch: rule.Version, Percent: 0,
	})
	switch {
	case err == nil:
		s.cfg.Log.Warn("stopped a canary", "rule", rule.ID, "why", verdict.Why, "percent", rule.Candidate.Percent, "revision", applied.Revision)
	case rulestore.CodeOf(err) == rulestore.Conflict || rulestore.CodeOf(err) == rulestore.NotFound || s.loop.Closed():
	case s.failed[rule.ID] != rule.Version:
		s.failed[rule.ID] = rule.Version
		s.cfg.Log.Error("a canary is to be stopped, and the database does not take it; trying on", "rule", rule.ID, "why", verdict.Why, "error", err)
	}
}

// Proven reports whether a rule's candidate has proven itself, and why, or why not.
func (s *Supervisor) Proven(rule string) (ok bool, why string) {
	verdict, _, err := s.Trial(rule)
	if err != nil {
		return false, err.Error()
	}
	return verdict.State == candidate.Proven, verdict.Why
}

// Trial returns how a rule's candidate does, and the keys that it hits hardest, as
// pods show them: of which it denied most that the live version did not. An error is
// a *rulestore.Error: there is no such rule, or no candidate.
func (s *Supervisor) Trial(rule string) (candidate.Verdict, []candidate.KeyCount, error) {
	for _, row := range s.cfg.Rules() {
		if row.ID != rule {
			continue
		}
		if row.Candidate.Body == nil {
			return candidate.Verdict{}, nil, &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Message: "has no candidate"}
		}
		verdict, slices := s.judge(&row)
		return verdict, candidate.Hardest(slices, HardestKeys), nil
	}
	return candidate.Verdict{}, nil, &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Message: fmt.Sprintf("there is no rule %q", rule)}
}
