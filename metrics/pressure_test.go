package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tallygate/tallygate/metrics"
)

func TestPressureCollector(t *testing.T) {
	t.Parallel()
	c := metrics.NewPressureCollector(func() metrics.Pressure {
		return metrics.Pressure{Factors: map[int]float64{0: 0.3, 500: 0.8}, Shed: 7}
	})
	const want = `
# HELP tallygate_backpressure_factor What a priority admits of what passed before the upstream was overloaded, 1 for all.
# TYPE tallygate_backpressure_factor gauge
tallygate_backpressure_factor{priority="0"} 0.3
tallygate_backpressure_factor{priority="500"} 0.8
# HELP tallygate_backpressure_shed_total Requests refused with 503 overloaded, since the upstream is.
# TYPE tallygate_backpressure_shed_total counter
tallygate_backpressure_shed_total 7
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
