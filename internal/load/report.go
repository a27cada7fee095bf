package load

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Limit is the rule's numbers, as far as whoever runs a load knows them.
type Limit struct {
	// Rate is tokens a second, Burst what a full bucket holds.
	Rate, Burst int64
}

// Report is a run in figures.
type Report struct {
	// Loop is open or closed, Rate the checks due a second in an open one.
	Loop       string  `json:"loop"`
	Rate       float64 `json:"rate,omitempty"`
	Servers    int     `json:"servers"`
	Keys       int     `json:"keys"`
	Workers    int     `json:"workers"`
	DurationS  float64 `json:"duration_s"`
	Checks     int64   `json:"checks"`
	ChecksPerS float64 `json:"checks_per_s"`
	Allowed    int64   `json:"allowed"`
	Denied     int64   `json:"denied"`
	// Degraded were allowed without being counted.
	Degraded int64 `json:"degraded"`
	Errors   int64 `json:"errors"`
	// FirstError is why the first check failed that did.
	FirstError string `json:"first_error,omitempty"`
	// Unsent were due, and no worker was free in time.
	Unsent  int64   `json:"unsent"`
	Latency Latency `json:"latency"`
	// Envelope is there if the limit was given.
	Envelope *Envelope `json:"envelope,omitempty"`
}

// Latency is in microseconds.
type Latency struct {
	P50US  int64 `json:"p50_us"`
	P90US  int64 `json:"p90_us"`
	P99US  int64 `json:"p99_us"`
	P999US int64 `json:"p999_us"`
	MaxUS  int64 `json:"max_us"`
}

// Envelope compares what was admitted with what a limit allows in that time.
type Envelope struct {
	Rate  int64 `json:"rate"`
	Burst int64 `json:"burst"`
	// MostPerKey is burst + rate × (duration + 1 ms), Most the same of all keys.
	MostPerKey float64 `json:"most_per_key"`
	Most       float64 `json:"most"`
	// Admitted are tokens of all keys, AdmittedByOneKey those of the key with most.
	Admitted         int64 `json:"admitted"`
	AdmittedByOneKey int64 `json:"admitted_by_one_key"`
	// Part is Admitted / Most, Over what the key with most had above MostPerKey.
	Part float64 `json:"part"`
	Over float64 `json:"over"`
}

// Drive sends checks to a target at the plan's pace. limit may be zero. An error
// is a wrong plan or target, an [ErrPlan]; checks that fail are in the report.
func Drive(ctx context.Context, plan Plan, target Target, limit Limit) (*Report, error) {
	c, err := NewClient(target, plan.Workers)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r, err := Run(ctx, plan, func(ctx context.Context, _ int, n int64) Outcome { return c.Check(ctx, n) })
	if err != nil {
		return nil, err
	}
	return newReport(plan, c, r, limit), nil
}

// newReport puts a run of a client into figures.
func newReport(plan Plan, c *Client, r *Result, limit Limit) *Report {
	report := &Report{
		Loop: "closed", Servers: len(c.urls), Keys: c.target.Keys, Workers: plan.Workers,
		DurationS: r.Took.Seconds(), Checks: r.Checks(), ChecksPerS: float64(r.Checks()) / r.Took.Seconds(),
		Allowed: r.Counts[Allowed], Denied: r.Counts[Denied], Degraded: r.Counts[Degraded], Errors: r.Counts[Failed],
		Unsent: r.Unsent,
		Latency: Latency{
			P50US: r.Percentile(50).Microseconds(), P90US: r.Percentile(90).Microseconds(),
			P99US: r.Percentile(99).Microseconds(), P999US: r.Percentile(99.9).Microseconds(), MaxUS: r.Max.Microseconds(),
		},
	}
	if plan.Rate > 0 {
		report.Loop, report.Rate = "open", plan.Rate
	}
	if c.cause != nil {
		report.FirstError = c.cause.Error()
	}
	if limit != (Limit{}) {
		all, most := c.Admitted()
		e := &Envelope{Rate: limit.Rate, Burst: limit.Burst, Admitted: all, AdmittedByOneKey: most}
		e.MostPerKey = float64(limit.Burst) + float64(limit.Rate)*(r.Took.Seconds()+0.001)
		e.Most = e.MostPerKey * float64(c.target.Keys)
		e.Part, e.Over = float64(all)/e.Most, max(0, float64(most)-e.MostPerKey)
		report.Envelope = e
	}
	return report
}

// Print writes the report as a table.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...)
	}
	if r.Loop == "open" {
		line("loop", "open, %.0f/s due, latency from when due, %d workers", r.Rate, r.Workers)
	} else {
		line("loop", "closed, %d workers, latency from sending", r.Workers)
	}
	line("servers", "%d", r.Servers)
	line("keys", "%d", r.Keys)
	line("duration", "%.2f s", r.DurationS)
	line("checks", "%d, %.0f/s", r.Checks, r.ChecksPerS)
	line("allowed", "%d", r.Allowed)
	line("denied", "%d", r.Denied)
	line("degraded", "%d", r.Degraded)
	line("errors", "%d", r.Errors)
	if r.FirstError != "" {
		line("first error", "%s", r.FirstError)
	}
	if r.Unsent > 0 {
		line("unsent", "%d: too few workers, or a server that does not keep up", r.Unsent)
	}
	for _, l := range []struct {
		name string
		us   int64
	}{{"p50", r.Latency.P50US}, {"p90", r.Latency.P90US}, {"p99", r.Latency.P99US}, {"p99.9", r.Latency.P999US}, {"max", r.Latency.MaxUS}} {
		line(l.name, "%s", time.Duration(l.us)*time.Microsecond)
	}
	if e := r.Envelope; e != nil {
		line("limit", "burst %d + %d/s over %.2f s: at most %.0f tokens a key", e.Burst, e.Rate, r.DurationS, e.MostPerKey)
		line("admitted", "%d of at most %.0f: %.2f %%", e.Admitted, e.Most, 100*e.Part)
		line("above the limit", "%.0f tokens", e.Over)
	}
	return w.Flush()
}
