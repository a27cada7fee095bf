package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/limit"
)

// MaxBytes bounds a scenario file.
const MaxBytes = 1 << 20

// Parse reads a scenario of that name. The seed is left at 0. An error has the
// line and column where the file is not as it should be, or names the rule, the
// traffic or the fault that makes no sense.
func Parse(name string, data []byte) (sim.Config, error) {
	f, err := decode(data)
	if err != nil {
		return sim.Config{}, fmt.Errorf("%s: %w", name, err)
	}
	c, err := f.config()
	if err != nil {
		return sim.Config{}, fmt.Errorf("%s: %w", name, err)
	}
	c.Name = name
	if err := c.Validate(); err != nil {
		return sim.Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func decode(data []byte) (f file, err error) {
	if len(data) > MaxBytes {
		return f, fmt.Errorf("%d bytes are above %d", len(data), MaxBytes)
	}
	defer func() {
		// The parser is not ours, and follows some malformed nodes into nothing.
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML parser failed: %v", p)
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := d.Decode(&f); err != nil {
		return f, oneLine(err)
	}
	if err := d.Decode(&file{}); !errors.Is(err, io.EOF) {
		return f, errors.New("a second YAML document")
	}
	return f, nil
}

// oneLine keeps the place and the message of an error of the parser, which also
// draws the lines around it.
func oneLine(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	}
	var y yaml.Error
	if !errors.As(err, &y) {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return errors.New(first)
	}
	message, _, _ := strings.Cut(y.GetMessage(), "\n")
	if tk := y.GetToken(); tk != nil && tk.Position != nil {
		return fmt.Errorf("%d:%d: %s", tk.Position.Line, tk.Position.Column, message)
	}
	return errors.New(message)
}

func (f *file) config() (sim.Config, error) {
	c := sim.Config{
		Pods: int(f.Pods), Duration: seconds(f.DurationS), Shards: int(orElse(f.Shards, 1)),
		Network: sim.Network{
			Latency:  milliseconds(orElse(f.Store.LatencyMS, 1)),
			Jitter:   milliseconds(f.Store.JitterMS),
			Patience: milliseconds(orElse(f.Store.PatienceMS, 5)),
		},
	}
	for i := range f.Rules {
		r, err := f.Rules[i].rule()
		if err != nil {
			return c, fmt.Errorf("rule %q: %w", f.Rules[i].ID, err)
		}
		c.Rules = append(c.Rules, r)
	}
	for i := range f.Traffic {
		t, err := f.Traffic[i].traffic(c.Rules)
		if err != nil {
			return c, fmt.Errorf("traffic %d: %w", i+1, err)
		}
		c.Traffic = append(c.Traffic, t)
	}
	c.Faults = f.Faults.faults()
	var err error
	c.Faults.Store, err = f.Faults.store()
	return c, err
}

func (r *rule) rule() (sim.Rule, error) {
	l := limit.Limit{Rate: int64(r.Rate), Burst: int64(r.Burst), PeriodMS: int64(orElse(r.PerS, 1)) * 1000, Revision: 1}
	switch r.Algorithm {
	case "token_bucket":
		l.Algorithm = limit.TokenBucket
	case "sliding_window":
		l.Algorithm = limit.SlidingWindow
	case "fixed_window":
		l.Algorithm = limit.FixedWindow
	case "sliding_log":
		l.Algorithm = limit.SlidingLog
	default:
		return sim.Rule{}, fmt.Errorf("algorithm %q is none of token_bucket, sliding_window, sliding_log, fixed_window", r.Algorithm)
	}
	if l.Algorithm != limit.TokenBucket {
		if r.PerS != 0 {
			return sim.Rule{}, errors.New("per_s is of a token_bucket")
		}
		l.PeriodMS, l.Capacity, l.WindowMS = 0, int64(r.Limit), int64(r.WindowS)*1000
	} else if r.Limit != 0 || r.WindowS != 0 {
		return sim.Rule{}, errors.New("limit and window_s are of a window")
	}
	x := sim.Rule{ID: r.ID, Limit: l, MaxCost: int64(orElse(r.MaxCost, 1)), MaxLease: int64(orElse(r.MaxLease, 1000))}
	if l.Algorithm == limit.SlidingLog && r.Counting == "" {
		r.Counting = "exact"
	}
	if err := r.terms(&x.Terms); err != nil {
		return sim.Rule{}, err
	}
	if x.Terms.Counting != pod.Lease {
		x.MaxLease = 0
	}
	return x, r.failMode(&x)
}

// terms reads how pods count, with the defaults of a rules file.
func (r *rule) terms(t *pod.Terms) error {
	t.Sync = milliseconds(orElse(r.SyncMS, 50))
	switch r.Counting {
	case "", "lease":
	case "exact":
		t.Counting = pod.Exact
		return nil
	case "async":
		t.Counting = pod.Async
	default:
		return fmt.Errorf("counting %q is none of lease, exact, async", r.Counting)
	}
	switch r.PreLimit {
	case "", "limit":
		t.Before = pod.PreLimit{Milli: 1000}
	case "fair_share":
		t.Before = pod.PreLimit{Milli: 2000, FairShare: true}
	case "off":
	default:
		return fmt.Errorf("pre_limit %q is none of limit, fair_share, off", r.PreLimit)
	}
	return nil
}

func (t *traffic) traffic(rules []sim.Rule) (sim.Traffic, error) {
	x := sim.Traffic{
		FirstKey: int(t.FirstKey), Keys: int(orElse(t.Keys, 1)), PerSecond: t.Rate,
		Pinned: int(t.Pinned), Cost: int64(orElse(t.Cost, 1)),
	}
	switch t.Arrival {
	case "", "poisson":
	case "even":
		x.Even = true
	default:
		return x, fmt.Errorf("arrival %q is none of poisson, even", t.Arrival)
	}
	for _, id := range t.Rules {
		at := -1
		for i := range rules {
			if rules[i].ID == id {
				at = i
			}
		}
		if at < 0 {
			return x, fmt.Errorf("there is no rule %q", id)
		}
		x.Rules = append(x.Rules, at)
	}
	return x, nil
}

func (f *faults) faults() sim.Faults {
	x := sim.Faults{LostReply: f.LostReply / 100, Late: f.TimedOutButRan / 100}
	for _, s := range f.ClockStep {
		x.Steps = append(x.Steps, sim.Step{At: seconds(s.AtS), By: milliseconds(s.MS)})
	}
	for _, c := range f.PodCrash {
		x.Crashes = append(x.Crashes, sim.Crash{At: seconds(c.AtS), Pod: int(c.Pod)})
	}
	for _, p := range f.PodPause {
		x.Pauses = append(x.Pauses, sim.Pause{At: seconds(p.AtS), Pod: int(p.Pod), For: milliseconds(p.MS)})
	}
	for _, s := range f.Autoscale {
		x.Scales = append(x.Scales, sim.Scale{At: seconds(s.AtS), Pods: int(s.Pods)})
	}
	return x
}

func seconds(s float64) time.Duration       { return time.Duration(math.Round(s * 1e9)) }
func milliseconds(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// orElse returns x, or a default for a field that is not there.
func orElse[T comparable](x, otherwise T) T {
	var zero T
	if x == zero {
		return otherwise
	}
	return x
}
