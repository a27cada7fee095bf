package metrics

import "github.com/prometheus/client_golang/prometheus"

// ProxyCounts are what a reverse proxy counted that no answer of the limiter shows. All
// but Inflight only grow.
type ProxyCounts struct {
	// Inflight is the requests under way.
	Inflight int64
	// Unreachable and Timeouts were not answered by the upstream; Broken is the answers
	// that it broke off.
	Unreachable, Timeouts, Broken int64
	// Canceled are the requests whose client went before there was an answer.
	Canceled int64
	// BadCosts and MissingCosts are the answers that told no cost, or one that is none;
	// LostCosts those whose cost the store did not take.
	BadCosts, MissingCosts, LostCosts int64
}

// NewProxyCollector returns a collector over what read returns, which must be safe for
// concurrent use.
func NewProxyCollector(read func() ProxyCounts) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &proxyCollector{
		read:     read,
		inflight: desc("tallygate_proxy_inflight_requests", "Requests under way in the proxy."),
		failures: desc("tallygate_proxy_upstream_failures_total", "Requests that the upstream did not answer, or whose answer it broke off, by kind.", "kind"),
		canceled: desc("tallygate_proxy_canceled_requests_total", "Requests whose client went before the upstream answered."),
		untold:   desc("tallygate_proxy_untold_costs_total", "Answers without a cost to be told, so that the estimate stood, by kind.", "kind"),
		lost:     desc("tallygate_proxy_lost_costs_total", "Costs that the store did not take."),
	}
}

type proxyCollector struct {
	read                                       func() ProxyCounts
	inflight, failures, canceled, untold, lost *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (p *proxyCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.inflight, p.failures, p.canceled, p.untold, p.lost} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (p *proxyCollector) Collect(out chan<- prometheus.Metric) {
	c := p.read()
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	show(p.inflight, gauge, c.Inflight)
	show(p.failures, counter, c.Unreachable, "unreachable")
	show(p.failures, counter, c.Timeouts, "timeout")
	show(p.failures, counter, c.Broken, "broken")
	show(p.canceled, counter, c.Canceled)
	show(p.untold, counter, c.MissingCosts, "missing")
	show(p.untold, counter, c.BadCosts, "bad")
	show(p.lost, counter, c.LostCosts)
}
