package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/loop"
)

// Sink is where reports go: a [Client], or the [Registry] of the same process.
type Sink interface {
	Report(ctx context.Context, report Report) (Receipt, error)
}

// reportTimeout bounds one report: it must not be under way when the next is due.
const reportTimeout = 5 * time.Second

// ReporterConfig says what to report, and where.
type ReporterConfig struct {
	// Sink takes the reports. Required.
	Sink Sink
	// Build makes a report; its trials have the slices that begin at sinceMS or later,
	// all that are kept for 0. It is never called twice at once. Required.
	Build func(sinceMS int64) Report
	// Every is the time between two reports, give or take a tenth; 0 means 10 s.
	Every time.Duration
	// Log is told of the first failure in a row, and of its end; nil means none.
	Log *slog.Logger
}

// Reporter tells the control plane how a pod does.
//
//	NewReporter ─► Start (one goroutine, the first report at once) ─► Close
type Reporter struct {
	cfg  ReporterConfig
	news chan struct{} // there is something to tell before its time

	// Of the loop.
	sinceMS int64 // the newest slice that was acknowledged: its count may still have grown
	failing bool

	loop loop.Loop
}

// NewReporter returns a reporter. It starts nothing.
func NewReporter(cfg ReporterConfig) (*Reporter, error) {
	switch {
	case cfg.Sink == nil || cfg.Build == nil:
		return nil, errors.New("fleet: ReporterConfig.Sink and Build are required")
	case cfg.Every < 0:
		return nil, errors.New("fleet: ReporterConfig.Every is negative")
	case cfg.Every == 0:
		cfg.Every = ReportEvery * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reporter{cfg: cfg, news: make(chan struct{}, 1)}, nil
}

// Start begins to report, until Close. Started twice or after Close, it does nothing.
func (r *Reporter) Start() { r.loop.Start(r.run) }

// newsWithin spreads the reports of pods that have news together, such as a change
// of the rules.
const newsWithin = 500 * time.Millisecond

// News has the next report made soon, as when the rules changed.
func (r *Reporter) News() {
	select {
	case r.news <- struct{}{}:
	default: // it is known
	}
}

// Close ends a report under way and returns when nothing runs any more. Closed twice,
// it does nothing.
func (r *Reporter) Close() error {
	r.loop.Close()
	return nil
}

func (r *Reporter) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.report(ctx)
		timer := time.NewTimer(time.Duration(float64(r.cfg.Every) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.news:
			loop.Pause(ctx, min(r.cfg.Every, time.Duration(rand.Int64N(int64(newsWithin)))))
		}
		timer.Stop()
	}
}

// report reports once, and once more to who has forgotten what was acknowledged.
func (r *Reporter) report(ctx context.Context) {
	receipt, err := r.send(ctx)
	if err == nil && !receipt.Known && r.sinceMS > 0 {
		r.sinceMS = 0
		receipt, err = r.send(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !r.failing:
		r.failing = true
		r.cfg.Log.Warn("the control plane does not take this pod's reports; trying on", "error", err)
	case err == nil && r.failing:
		r.failing = false
		r.cfg.Log.Info("the control plane takes this pod's reports again")
	}
}

// send sends what was not acknowledged. The newest slice that was goes once more: a
// check may have been counted in it since.
func (r *Reporter) send(ctx context.Context) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	report := r.cfg.Build(r.sinceMS)
	receipt, err := r.cfg.Sink.Report(ctx, report)
	if err != nil {
		return Receipt{}, err
	}
	r.sinceMS = max(r.sinceMS, newest(report.Trials))
	return receipt, nil
}

// newest is the start of the newest slice, 0 for none.
func newest(trials []candidate.Trial) (startMS int64) {
	for _, trial := range trials {
		for _, slice := range trial.Slices {
			startMS = max(startMS, slice.StartMS)
		}
	}
	return startMS
}
