package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate"
)

// Collector is a prometheus.Collector over a limiter. Create it with
// [NewCollector]; it is safe for concurrent use and starts no goroutine. Figures
// are summed when they are asked for: a check pays nothing for a collector.
type Collector struct {
	limiter *tallygate.Limiter
	calls   *prometheus.HistogramVec
	descs   map[string]*prometheus.Desc
	metrics []metric
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector over a limiter, which it also asks to be told of
// each store call from now on. One a limiter is enough: a second one counts the same.
func NewCollector(limiter *tallygate.Limiter) *Collector {
	c := &Collector{
		limiter: limiter,
		calls:   prometheus.NewHistogramVec(storeCallOpts(), []string{"shard"}),
		descs:   map[string]*prometheus.Desc{},
		metrics: metrics(),
	}
	for _, m := range c.metrics {
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	// The one shard there is so far; its child is resolved once.
	nameless := c.calls.WithLabelValues("")
	limiter.OnStoreCall(func(call tallygate.StoreCall) {
		child := nameless
		if call.Shard != "" {
			child = c.calls.WithLabelValues(call.Shard)
		}
		child.Observe(call.Took.Seconds())
	})
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		to <- c.descs[m.name]
	}
	c.calls.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	stats := c.limiter.Stats()
	for _, m := range c.metrics {
		desc := c.descs[m.name]
		m.read(&stats, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, m.kind, value, labels...)
		})
	}
	c.calls.Collect(to)
}
