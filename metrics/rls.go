package metrics

import "github.com/prometheus/client_golang/prometheus"

// RLSCounts are what Envoy's rate limit service counted that no answer of the limiter
// shows. They only grow.
type RLSCounts struct {
	// UnknownDomain were passed since there is no rule in their domain, FailClosed had
	// no answer of the store and a rule that fails closed.
	UnknownDomain, FailClosed int64
	// Failed got an error, and Panics of a bug of ours.
	Failed, Panics int64
}

// NewRLSCollector returns a collector over what read returns, which must be safe for
// concurrent use.
func NewRLSCollector(read func() RLSCounts) prometheus.Collector {
	return &rlsCollector{read: read}
}

type rlsCollector struct{ read func() RLSCounts }

// Describe implements prometheus.Collector.
func (*rlsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range rlsMetrics() {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *rlsCollector) Collect(out chan<- prometheus.Metric) {
	counts := c.read()
	for _, m := range rlsMetrics() {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value(counts)))
	}
}

type rlsMetric struct {
	desc  *prometheus.Desc
	value func(RLSCounts) int64
}

func rlsMetrics() []rlsMetric {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return []rlsMetric{
		{desc("tallygate_rls_unknown_domain_total", "Requests of Envoy's rate limit service that passed since their domain has no rule."), func(c RLSCounts) int64 { return c.UnknownDomain }},
		{desc("tallygate_rls_fail_closed_total", "Requests of Envoy's rate limit service without an answer of the store, for a rule that fails closed."), func(c RLSCounts) int64 { return c.FailClosed }},
		{desc("tallygate_rls_errors_total", "Requests of Envoy's rate limit service that got a gRPC error."), func(c RLSCounts) int64 { return c.Failed }},
		{desc("tallygate_rls_panics_total", "Requests of Envoy's rate limit service that met a bug of the server."), func(c RLSCounts) int64 { return c.Panics }},
	}
}
