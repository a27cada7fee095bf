package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Pressure is what a proxy's back-pressure does.
type Pressure struct {
	// Factors is what each priority admits of what passed before, 0.05 to 1.
	Factors map[int]float64
	// Shed is the requests that were not admitted, since the start.
	Shed int64
}

// NewPressureCollector returns a collector over a proxy's back-pressure, as read says
// it is: safe for concurrent use.
func NewPressureCollector(read func() Pressure) prometheus.Collector {
	return &pressure{
		read:   read,
		factor: prometheus.NewDesc("tallygate_backpressure_factor", "What a priority admits of what passed before the upstream was overloaded, 1 for all.", []string{"priority"}, nil),
		shed:   prometheus.NewDesc("tallygate_backpressure_shed_total", "Requests refused with 503 overloaded, since the upstream is.", nil, nil),
	}
}

type pressure struct {
	read         func() Pressure
	factor, shed *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (p *pressure) Describe(out chan<- *prometheus.Desc) {
	out <- p.factor
	out <- p.shed
}

// Collect implements [prometheus.Collector].
func (p *pressure) Collect(out chan<- prometheus.Metric) {
	now := p.read()
	for priority, factor := range now.Factors {
		out <- prometheus.MustNewConstMetric(p.factor, prometheus.GaugeValue, factor, strconv.Itoa(priority))
	}
	out <- prometheus.MustNewConstMetric(p.shed, prometheus.CounterValue, float64(now.Shed))
}
