package metrics

import "github.com/prometheus/client_golang/prometheus"

// NewShedCollector returns a collector over the requests that a server refused since
// too many were under way, as shed counts them: it must only grow, and be safe for
// concurrent use.
func NewShedCollector(shed func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tallygate_overloaded_requests_total",
		Help: "Requests refused with 503 overloaded, since more than --max-inflight were under way.",
	}, func() float64 { return float64(shed()) })
}

// NewUntrustedCollector returns a collector over the questions of gateways that were
// refused since the gateway is none of the trusted proxies, as untrusted counts them: it
// must only grow, and be safe for concurrent use.
func NewUntrustedCollector(untrusted func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tallygate_untrusted_gateway_requests_total",
		Help: "Requests of GET /v1/ratelimit:forward refused with 403 forbidden, since they came from outside --trusted-proxies.",
	}, func() float64 { return float64(untrusted()) })
}
