package sim

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
)

// Result is what a simulation found. The JSON names are stable.
type Result struct {
	Scenario  string  `json:"scenario"`
	Seed      uint64  `json:"seed"`
	Pods      int     `json:"pods"`
	DurationS float64 `json:"duration_s"`

	// Checks ended as Allowed, Denied or Unanswered, each exactly once. Unanswered are
	// those that a rule refused which fails closed, and those whose pod crashed.
	Checks     int64 `json:"checks"`
	Allowed    int64 `json:"allowed"`
	Denied     int64 `json:"denied"`
	Unanswered int64 `json:"unanswered"`

	// StoreCallsPerS is all pods' calls, give-backs included.
	StoreCallsPerS float64 `json:"store_calls_per_s"`
	// AskCallsPerS are those that checks wait for, TopUpCallsPerS those that fetch
	// leases before they are used up, BackCallsPerS the others: they give back, or tell what async rules counted.
	AskCallsPerS    float64 `json:"ask_calls_per_s"`
	TopUpCallsPerS  float64 `json:"top_up_calls_per_s"`
	BackCallsPerS   float64 `json:"give_back_calls_per_s"`
	CallsPerChkPct  float64 `json:"calls_per_check_pct"`
	PodCallsMaxPerS int64   `json:"pod_calls_max_per_s"`
	// SetCallsOpenMax is the most calls one pod had under way for one bucket set.
	SetCallsOpenMax int64 `json:"set_calls_in_flight_max"`

	// ServedOfExactPct is the checks allowed, of those that one exact limiter in
	// front of the same traffic lets pass, whatever bucket stops the others.
	ServedOfExactPct float64 `json:"served_of_exact_pct"`
	// FailOpen are the checks answered without the store, of which Fallback were
	// answered by a fallback, and FailClosed those that a rule refused instead.
	FailOpen         int64 `json:"fail_open"`
	Fallback         int64 `json:"fallback"`
	FailClosed       int64 `json:"fail_closed"`
	BreakerOpenings  int64 `json:"breaker_openings"`
	FallbackAdmitted int64 `json:"fallback_admitted_tokens"`
	// Told is what of that pods told the store, Charged what it could take of it.
	Told    int64 `json:"told_tokens"`
	Charged int64 `json:"charged_tokens"`
	// OutageMaxPct is the most that fallbacks admitted of a bucket in one outage, in
	// percent of its bound: 2 (burst + rate × its time) of a rule that fails open.
	OutageMaxPct float64 `json:"outage_max_pct"`
	// SpanMaxPct is the most that any bucket admitted in all, in percent of its bound:
	// 3 burst + 3 rate × time of a rule that fails open. 0 where the store has answered
	// all checks.
	SpanMaxPct float64 `json:"span_max_pct"`

	// AboveEnvelope is the most tokens any bucket admitted above the envelope in any
	// span, fallbacks aside; buckets of async rules are left out, whose rules tell it.
	AboveEnvelope int64 `json:"above_envelope_tokens"`
	// AboveFallback is the same of what fallbacks admitted, above their bound, and
	// AboveSpan of all together. AboveTogether is above the bound of pods that lose
	// and find the store together, which holds for no others.
	AboveFallback int64 `json:"above_fallback_tokens"`
	AboveSpan     int64 `json:"above_span_tokens"`
	AboveTogether int64 `json:"above_together_tokens"`
	// AboveClosed is what rules that fail closed admitted where nothing may be.
	AboveClosed int64 `json:"above_closed_tokens"`
	// Stranded is the tokens still out when all pods that live have given back all
	// they hold: what crashes and lost replies took, until their leases end.
	Stranded int64 `json:"stranded_tokens"`

	// LeaseHitPct and the like are the checks that no call was made for: allowed by
	// leases, by an async estimate, denied from memory, by the pre-limit.
	LeaseHitPct  float64 `json:"lease_hit_pct"`
	EstimatePct  float64 `json:"async_hit_pct"`
	DenyCachePct float64 `json:"deny_cache_pct"`
	PreLimitPct  float64 `json:"pre_limit_pct"`
	// WaitMeanMS and the like are of the checks that the store was asked for.
	WaitMeanMS float64 `json:"wait_mean_ms"`
	WaitP99MS  float64 `json:"wait_p99_ms"`
	WaitMaxMS  float64 `json:"wait_max_ms"`

	DecisionsPerRealS float64 `json:"decisions_per_real_s"`
	TraceHash         string  `json:"trace_hash"`

	Rules  []RuleResult  `json:"rules"`
	Shards []ShardResult `json:"shards"`
}

// ShardResult is what happened at one shard.
type ShardResult struct {
	FailOpen        int64 `json:"fail_open"`
	Fallback        int64 `json:"fallback"`
	FailClosed      int64 `json:"fail_closed"`
	BreakerOpenings int64 `json:"breaker_openings"`
}

// Above is the tokens admitted above any bound.
func (r *Result) Above() int64 {
	return max(r.AboveEnvelope, r.AboveFallback, r.AboveSpan, r.AboveClosed)
}

// RuleResult is what became of one rule's tokens, over all of its buckets.
type RuleResult struct {
	Rule     string `json:"rule"`
	Buckets  int64  `json:"buckets"`
	Offered  int64  `json:"offered_tokens"`
	Admitted int64  `json:"admitted_tokens"`
	// ServedPct is admitted tokens of what the limit would serve: the sum of
	// min(offered, burst + rate·d). Another rule of the same checks may stop more.
	ServedPct float64 `json:"served_pct"`
	// OfRatePct is the same of rate·d alone, or of the windows' limits.
	OfRatePct float64 `json:"of_rate_pct"`
	// AboveEnvelope is the most tokens one bucket admitted above its envelope.
	AboveEnvelope int64 `json:"above_envelope_tokens"`
	// Fallback is what of Admitted came from fallbacks, Told and Charged what the store
	// was told of it and could take.
	Fallback int64 `json:"fallback_tokens"`
	Told     int64 `json:"told_tokens"`
	Charged  int64 `json:"charged_tokens"`
	// OutageMaxPct and the like are as those of the Result.
	OutageMaxPct  float64 `json:"outage_max_pct"`
	SpanMaxPct    float64 `json:"span_max_pct"`
	AboveFallback int64   `json:"above_fallback_tokens"`
	AboveSpan     int64   `json:"above_span_tokens"`
	AboveTogether int64   `json:"above_together_tokens"`
	AboveClosed   int64   `json:"above_closed_tokens"`
	// OpsPerS is how often calls of the store named one of the rule's buckets.
	OpsPerS float64 `json:"store_ops_per_s"`

	// OutMeanPct and OutMaxPct are the tokens out on leases as the store knows
	// them, HeldMeanPct and HeldMaxPct those that pods hold unspent: as parts of
	// the burst.
	OutMeanPct  float64 `json:"out_mean_pct"`
	OutMaxPct   float64 `json:"out_max_pct"`
	HeldMeanPct float64 `json:"held_mean_pct"`
	HeldMaxPct  float64 `json:"held_max_pct"`
}

// Took notes how long the simulation took in real time: it reads no clock itself.
func (r *Result) Took(d time.Duration) {
	r.DecisionsPerRealS = ratio(float64(r.Checks), d.Seconds())
}

func (f *fleet) result() *Result {
	t, c := &f.tally, f.config
	for i := range f.pods { // a run of less than a second has no whole one
		t.callsMost = max(t.callsMost, f.pods[i].calls)
	}
	r := &Result{
		Scenario: c.Name, Seed: c.Seed, Pods: c.Pods, DurationS: c.Duration.Seconds(),
		Allowed:         t.outcomes[allowedByLease] + t.outcomes[allowedByEstimate] + t.outcomes[allowedByStore] + t.outcomes[allowedByFallback],
		Denied:          t.outcomes[deniedByCache] + t.outcomes[deniedByPreLimit] + t.outcomes[deniedByStore] + t.outcomes[deniedByFallback],
		Unanswered:      t.outcomes[unanswered] + t.outcomes[failedClosed],
		AskCallsPerS:    t.perSecond(c, t.calls[forChecks]),
		TopUpCallsPerS:  t.perSecond(c, t.calls[forLeases]),
		BackCallsPerS:   t.perSecond(c, t.calls[forNobody]),
		PodCallsMaxPerS: int64(t.callsMost),
		SetCallsOpenMax: int64(t.openMost),
		Stranded:        t.stranded,
		WaitMaxMS:       float64(t.waitMax) / 1e6,
		TraceHash:       fmt.Sprintf("%016x", t.hash),
	}
	r.Checks = r.Allowed + r.Denied + r.Unanswered
	calls := t.calls[forChecks] + t.calls[forLeases] + t.calls[forNobody]
	r.StoreCallsPerS = t.perSecond(c, calls)
	r.CallsPerChkPct = percent(calls, r.Checks)
	r.ServedOfExactPct = percent(r.Allowed, t.exact)
	r.LeaseHitPct = percent(t.outcomes[allowedByLease], r.Checks)
	r.EstimatePct = percent(t.outcomes[allowedByEstimate], r.Checks)
	r.DenyCachePct = percent(t.outcomes[deniedByCache], r.Checks)
	r.PreLimitPct = percent(t.outcomes[deniedByPreLimit], r.Checks)
	r.WaitMeanMS, r.WaitP99MS = t.waitFigures()
	for i := range c.Rules {
		x := f.ruleResult(i)
		if c.Rules[i].Terms.Counting != pod.Async {
			r.AboveEnvelope = max(r.AboveEnvelope, x.AboveEnvelope)
		}
		r.add(&x)
	}
	for i := range t.shards {
		x := &t.shards[i]
		r.FailOpen += x.open
		r.Fallback += x.fallback
		r.FailClosed += x.closed
		r.BreakerOpenings += x.openings
		r.Shards = append(r.Shards, ShardResult{FailOpen: x.open, Fallback: x.fallback, FailClosed: x.closed, BreakerOpenings: x.openings})
	}
	return r
}

// add adds what fallbacks of one rule did to that of all.
func (r *Result) add(x *RuleResult) {
	r.Rules = append(r.Rules, *x)
	r.FallbackAdmitted += x.Fallback
	r.Told += x.Told
	r.Charged += x.Charged
	r.OutageMaxPct = max(r.OutageMaxPct, x.OutageMaxPct)
	r.SpanMaxPct = max(r.SpanMaxPct, x.SpanMaxPct)
	r.AboveFallback = max(r.AboveFallback, x.AboveFallback)
	r.AboveSpan = max(r.AboveSpan, x.AboveSpan)
	r.AboveTogether = max(r.AboveTogether, x.AboveTogether)
	r.AboveClosed = max(r.AboveClosed, x.AboveClosed)
}

func (t *tally) perSecond(c *Config, n int64) float64 {
	return ratio(float64(n), c.Duration.Seconds())
}

// waitFigures returns the mean wait and that of the 99th of 100 checks, in ms.
func (t *tally) waitFigures() (mean, p99 float64) {
	var all, sum int64
	for _, n := range t.waits {
		all += n
	}
	for i, n := range t.waits {
		if sum += n; all > 0 && sum*100 >= all*99 {
			p99 = float64(int64(i+1)*waitSlot) / 1e6
			break
		}
	}
	return ratio(float64(t.waitSum)/1e6, float64(all)), p99
}

func (f *fleet) ruleResult(i int) RuleResult {
	rule, t := &f.config.Rules[i], &f.tally.rules[i]
	r := RuleResult{Rule: rule.ID}
	var serves, rate int64
	for b := i; b < len(f.tally.buckets); b += len(f.config.Rules) {
		x := &f.tally.buckets[b]
		if x.offered == 0 {
			continue
		}
		r.Buckets++
		r.Offered += x.offered
		r.Admitted += x.admitted
		r.Fallback += x.fallback
		r.Told += x.told
		r.Charged += x.charged
		if f.bounds != nil {
			r.SpanMaxPct = max(r.SpanMaxPct, ofBound(x.admitted, &f.bounds.sums[i], f.config.Duration))
		}
		a := f.above(int32(b))
		r.AboveEnvelope = max(r.AboveEnvelope, a.paid)
		r.AboveFallback = max(r.AboveFallback, a.alone)
		r.AboveSpan = max(r.AboveSpan, a.all)
		r.AboveTogether = max(r.AboveTogether, a.together)
		serves += min(x.offered, canServe(&rule.Limit, f.config.Duration))
		rate += canServe(&rule.Limit, f.config.Duration) - rule.Limit.Burst
	}
	if f.bounds != nil {
		r.OutageMaxPct, r.AboveClosed = f.bounds.worst[i], f.bounds.closed[i]
	}
	r.OfRatePct = percent(r.Admitted, rate)
	r.ServedPct = percent(r.Admitted, serves)
	r.OpsPerS = f.tally.perSecond(f.config, t.ops)
	total := t.burst * max(1, t.samples)
	r.OutMeanPct, r.OutMaxPct = percent(t.outSum, total), percent(t.outMax, t.burst)
	r.HeldMeanPct, r.HeldMaxPct = percent(t.heldSum, total), percent(t.heldMax, t.burst)
	return r
}

// canServe returns the tokens that a bucket can serve in a time, starting full.
func canServe(l *limit.Limit, d time.Duration) int64 {
	if l.Algorithm == limit.TokenBucket {
		return l.Burst + l.Rate*d.Milliseconds()/l.PeriodMS
	}
	windows := (d.Milliseconds() + l.WindowMS - 1) / l.WindowMS
	return l.Capacity * windows
}

func percent(part, whole int64) float64 { return 100 * ratio(float64(part), float64(whole)) }

// ratio is 0 for a whole of nothing, which JSON can say.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
