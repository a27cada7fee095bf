package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tallygate/tallygate/metrics"
)

func TestRLSCollector(t *testing.T) {
	t.Parallel()
	c := metrics.NewRLSCollector(func() metrics.RLSCounts {
		return metrics.RLSCounts{UnknownDomain: 1, FailClosed: 2, Failed: 3, Panics: 4}
	})
	const want = `
# HELP tallygate_rls_errors_total Requests of Envoy's rate limit service that got a gRPC error.
# TYPE tallygate_rls_errors_total counter
tallygate_rls_errors_total 3
# HELP tallygate_rls_panics_total Requests of Envoy's rate limit service that met a bug of the server.
# TYPE tallygate_rls_panics_total counter
tallygate_rls_panics_total 4
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "tallygate_rls_errors_total", "tallygate_rls_panics_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(c); n != 4 {
		t.Errorf("%d metrics, want 4", n)
	}
}
