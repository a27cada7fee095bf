package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/metrics"
	"github.com/tallygate/tallygate/rules"
)

func ExampleNewCollector() {
	snapshot, _ := rules.Compile(nil, rules.Set{Rules: []rules.Rule{bucket("growth-global")}}, 1, time.Now())
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(limiter))

	_, _ = limiter.Check(context.Background(), tallygate.Check{Attributes: map[string]string{"api_key": "acct_7Q2"}})

	families, _ := registry.Gather()
	for _, f := range families {
		if f.GetName() == "tallygate_spent_tokens_total" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// growth-global 1
}
