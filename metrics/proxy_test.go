package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tallygate/tallygate/metrics"
)

func TestProxyCollector(t *testing.T) {
	t.Parallel()
	c := metrics.NewProxyCollector(func() metrics.ProxyCounts {
		return metrics.ProxyCounts{
			Inflight: 1, Unreachable: 2, Timeouts: 3, Broken: 4, Canceled: 5,
			BadCosts: 6, MissingCosts: 7, LostCosts: 8,
		}
	})
	const want = `
# HELP tallygate_proxy_canceled_requests_total Requests whose client went before the upstream answered.
# TYPE tallygate_proxy_canceled_requests_total counter
tallygate_proxy_canceled_requests_total 5
# HELP tallygate_proxy_inflight_requests Requests under way in the proxy.
# TYPE tallygate_proxy_inflight_requests gauge
tallygate_proxy_inflight_requests 1
# HELP tallygate_proxy_lost_costs_total Costs that the store did not take.
# TYPE tallygate_proxy_lost_costs_total counter
tallygate_proxy_lost_costs_total 8
# HELP tallygate_proxy_untold_costs_total Answers without a cost to be told, so that the estimate stood, by kind.
# TYPE tallygate_proxy_untold_costs_total counter
tallygate_proxy_untold_costs_total{kind="bad"} 6
tallygate_proxy_untold_costs_total{kind="missing"} 7
# HELP tallygate_proxy_upstream_failures_total Requests that the upstream did not answer, or whose answer it broke off, by kind.
# TYPE tallygate_proxy_upstream_failures_total counter
tallygate_proxy_upstream_failures_total{kind="broken"} 4
tallygate_proxy_upstream_failures_total{kind="timeout"} 3
tallygate_proxy_upstream_failures_total{kind="unreachable"} 2
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
