package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate"
)

// metric is one name and how its series are read from a limiter's figures.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(s *tallygate.Stats, show func(value float64, labels ...string))
}

// Kinds, in short.
const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// storeCallOpts are a classic and a native histogram in one. A store in the same
// rack answers in 0.2 ms, a check waits 5 ms at most, and a call a second.
func storeCallOpts() prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name:                            "tallygate_store_call_seconds",
		Help:                            "Time of calls of the store, those that failed included, by shard.",
		Buckets:                         []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, 1},
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// metrics are all others.
func metrics() []metric {
	var all []metric
	for _, list := range [][]metric{checks(), ofRules(), ofLeases(), ofStore(), ofShards(), ofPod()} {
		all = append(all, list...)
	}
	return all
}

// checks are the figures of whole checks.
func checks() []metric {
	return []metric{
		{
			name: "tallygate_checks_total", kind: counter, labels: []string{"verdict", "source"},
			help: "Checks answered, by verdict and by who answered: of a denial the entry that denied, else the furthest asked.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for _, c := range s.Checks {
					show(float64(c.Count), verdict(c.Allow), string(c.Source))
				}
			},
		},
		{
			name: "tallygate_route_checks_total", kind: counter, labels: []string{"route", "verdict"},
			help: "Checks answered, by route template and verdict; the first 1000 routes by name.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for _, r := range s.Routes {
					show(float64(r.Allowed), r.Route, verdict(true))
					show(float64(r.Denied), r.Route, verdict(false))
				}
			},
		},
		{
			name: "tallygate_check_errors_total", kind: counter, labels: []string{"code"},
			help: "Checks without a verdict, by error code.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for _, e := range s.Errors {
					show(float64(e.Count), string(e.Code))
				}
			},
		},
		{
			name: "tallygate_degraded_checks_total", kind: counter, labels: []string{"reason"},
			help: "Checks answered without the store, which did not answer, by reason.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				show(float64(s.DegradedTimeout), string(tallygate.DegradedTimeout))
				show(float64(s.DegradedUnavailable), string(tallygate.DegradedUnavailable))
			},
		},
	}
}

func verdict(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

// ofRules are the figures by rule.
func ofRules() []metric {
	return []metric{
		{
			name: "tallygate_entries_total", kind: counter, labels: []string{"rule", "verdict", "source"},
			help: "Entries of checks, by rule, outcome and source.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for i := range s.Rules {
					for _, e := range s.Rules[i].Entries {
						show(float64(e.Count), s.Rules[i].Rule, string(e.Outcome), string(e.Source))
					}
				}
			},
		},
		byRule("tallygate_denied_checks_total", "Checks denied, by the rule that denied.",
			func(r *tallygate.RuleStats) int64 { return r.Denied }),
		byRule("tallygate_shadow_denied_total", "Entries that a shadow rule would have denied, by rule.",
			func(r *tallygate.RuleStats) int64 { return r.Count(tallygate.OutcomeShadowDeny) }),
		byRule("tallygate_spent_tokens_total", "Tokens spent by checks, by rule.",
			func(r *tallygate.RuleStats) int64 { return r.Spent }),
		byRule("tallygate_fail_open_total", "Entries allowed though the store did not answer, by rule.",
			func(r *tallygate.RuleStats) int64 { return r.FailOpen }),
		byRule("tallygate_fail_closed_total", "Checks refused since the store did not answer, by the rule that fails closed.",
			func(r *tallygate.RuleStats) int64 { return r.FailClosed }),
		byRule("tallygate_new_keys_overflow_total", "Entries of new keys beyond max_new_keys_per_s, counted in one bucket, by rule.",
			func(r *tallygate.RuleStats) int64 { return r.NewKeysOverflowed }),
		{
			name: "tallygate_reservations_total", kind: counter, labels: []string{"rule", "outcome"},
			help: "Entries of reservations by rule and by how the call on this pod ended: reserved, denied, committed, canceled, late.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for i := range s.Rules {
					if r := &s.Rules[i].Reservations; *r != (tallygate.ReservationStats{}) {
						show(float64(r.Reserved), s.Rules[i].Rule, "reserved")
						show(float64(r.Denied), s.Rules[i].Rule, "denied")
						show(float64(r.Committed), s.Rules[i].Rule, "committed")
						show(float64(r.Canceled), s.Rules[i].Rule, "canceled")
						show(float64(r.Late), s.Rules[i].Rule, "late")
					}
				}
			},
		},
		{
			name: "tallygate_candidate_checks_total", kind: counter, labels: []string{"rule", "live", "candidate"},
			help: "Checks of rules with a candidate, by rule and by what the live version and the candidate said.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for i := range s.Rules {
					if t := &s.Rules[i].Trials; *t != (tallygate.TrialStats{}) {
						show(float64(t.BothAllowed), s.Rules[i].Rule, verdict(true), verdict(true))
						show(float64(t.LiveDenied), s.Rules[i].Rule, verdict(false), verdict(true))
						show(float64(t.CandidateDenied), s.Rules[i].Rule, verdict(true), verdict(false))
						show(float64(t.BothDenied), s.Rules[i].Rule, verdict(false), verdict(false))
					}
				}
			},
		},
		{
			name: "tallygate_over_limit_tokens_total", kind: counter, labels: []string{"rule", "source"},
			help: "Tokens admitted that the bucket had not, as told to the store and not charged, by rule and by what admitted them.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				for i := range s.Rules {
					r := &s.Rules[i]
					show(float64(r.OverAsync), r.Rule, string(tallygate.SourceAsync))
					show(float64(r.OverFallback), r.Rule, string(tallygate.SourceFallback))
				}
			},
		},
	}
}

// byRule is a counter with one series a rule.
func byRule(name, help string, value func(*tallygate.RuleStats) int64) metric {
	return metric{name: name, help: help, kind: counter, labels: []string{"rule"}, read: func(s *tallygate.Stats, show func(float64, ...string)) {
		for i := range s.Rules {
			show(float64(value(&s.Rules[i])), s.Rules[i].Rule)
		}
	}}
}

// ofLeases are what became of tokens paid for in advance.
func ofLeases() []metric {
	return []metric{
		byLease("tallygate_lease_granted_tokens_total", "Tokens leased from the store, by rule.", counter,
			func(l *tallygate.LeaseStats) int64 { return l.Granted }),
		byLease("tallygate_lease_spent_tokens_total", "Leased tokens spent, as told to the store, by rule.", counter,
			func(l *tallygate.LeaseStats) int64 { return l.Spent }),
		byLease("tallygate_lease_returned_tokens_total", "Leased tokens given back unspent, by rule.", counter,
			func(l *tallygate.LeaseStats) int64 { return l.Returned }),
		byLease("tallygate_lease_expired_tokens_total", "Leased tokens that ended unspent before they could be given back, by rule.", counter,
			func(l *tallygate.LeaseStats) int64 { return l.Expired }),
		byLease("tallygate_lease_out_tokens", "Leased tokens of which the store has not been told yet, by rule.", gauge,
			func(l *tallygate.LeaseStats) int64 { return l.Out }),
		byLease("tallygate_lease_idle_tokens", "Leased tokens held unspent now, by rule.", gauge,
			func(l *tallygate.LeaseStats) int64 { return l.Idle }),
	}
}

// byLease is a metric with one series a rule that ever had a lease.
func byLease(name, help string, kind prometheus.ValueType, value func(*tallygate.LeaseStats) int64) metric {
	return metric{name: name, help: help, kind: kind, labels: []string{"rule"}, read: func(s *tallygate.Stats, show func(float64, ...string)) {
		for i := range s.Rules {
			if l := &s.Rules[i].Leases; l.Granted > 0 {
				show(float64(value(l)), s.Rules[i].Rule)
			}
		}
	}}
}

// ofStore are the figures of a store that is not in this process.
func ofStore() []metric {
	return []metric{
		one("tallygate_store_calls_total", "Calls of the store, those that failed included.", counter,
			func(s *tallygate.Stats) float64 { return float64(s.Store.Calls) }),
		{
			name: "tallygate_store_errors_total", kind: counter, labels: []string{"kind"},
			help: "Calls of the store without an answer, by kind.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				show(float64(s.Store.Timeouts), "timeout")
				show(float64(s.Store.Unavailable), "unavailable")
				show(float64(s.Store.Refused), "refused")
			},
		},
		one("tallygate_lease_top_ups_total", "Calls of the store that fetched a lease before the last one was used up.", counter,
			func(s *tallygate.Stats) float64 { return float64(s.Store.TopUps) }),
		{
			name: "tallygate_store_clock_offset_seconds", kind: gauge,
			help: "The store's clock less that by which overrides end, as of the last answer.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				if s.Store.ClockKnown {
					show(s.Store.ClockOffset.Seconds())
				}
			},
		},
	}
}

// ofPod are what the pod holds and works from.
func ofPod() []metric {
	return []metric{
		one("tallygate_pods", "Pods alive, this one included, as leases are sized by; 0 for a store in this process.", gauge,
			func(s *tallygate.Stats) float64 { return float64(s.Local.Pods) }),
		one("tallygate_local_buckets", "Buckets whose leases and denials the pod remembers.", gauge,
			func(s *tallygate.Stats) float64 { return float64(s.Local.Remembered) }),
		one("tallygate_fallback_buckets", "Buckets with a fallback that is not full, or of which the store is still to be told.", gauge,
			func(s *tallygate.Stats) float64 { return float64(s.Local.Fallbacks) }),
		one("tallygate_fallback_overflowed_total", "Draws on a fallback shared by keys that the pod's table had no room for.", counter,
			func(s *tallygate.Stats) float64 { return float64(s.Local.FallbackOverflowed) }),
		{
			name: "tallygate_memory_store_buckets", kind: gauge,
			help: "Buckets that the store in this process holds.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				if s.Local.Memory {
					show(float64(s.Local.Buckets))
				}
			},
		},
		{
			name: "tallygate_memory_store_overflowed_total", kind: counter,
			help: "Entries counted in a shared bucket since the table of the store in this process was full.",
			read: func(s *tallygate.Stats, show func(float64, ...string)) {
				if s.Local.Memory {
					show(float64(s.Local.Overflowed))
				}
			},
		},
		one("tallygate_snapshot_revision", "Revision of the rules in force.", gauge,
			func(s *tallygate.Stats) float64 { return float64(s.Snapshot.Revision) }),
		one("tallygate_snapshot_age_seconds", "Time since the pod first saw the rules in force.", gauge,
			func(s *tallygate.Stats) float64 { return s.Snapshot.Age.Seconds() }),
		one("tallygate_snapshot_rules", "Rules in force.", gauge,
			func(s *tallygate.Stats) float64 { return float64(s.Snapshot.Rules) }),
	}
}

// one is a metric of one series.
func one(name, help string, kind prometheus.ValueType, value func(*tallygate.Stats) float64) metric {
	return metric{name: name, help: help, kind: kind, read: func(s *tallygate.Stats, show func(float64, ...string)) {
		show(value(s))
	}}
}
