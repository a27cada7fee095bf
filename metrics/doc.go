// Package metrics shows a limiter's figures to Prometheus. The names of metrics live
// here and nowhere else; docs/metrics.md says what each means and what to alert on.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(metrics.NewCollector(limiter))
//
// The series are bounded: no label holds a key, and rules and routes beyond the
// first 1,000 of each share one, [tallygate.Other]. Nothing is registered by
// itself, nowhere.
package metrics
