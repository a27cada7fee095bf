package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate"
)

// ofShards are the figures of the store's servers, one series a shard.
func ofShards() []metric {
	return []metric{
		byShard("tallygate_shard_up", "Whether the shard is asked: 1, or 0 while its breaker is open.", gauge,
			func(h *tallygate.ShardStats) (float64, bool) {
				if h.Down > 0 {
					return 0, true
				}
				return 1, true
			}),
		byShard("tallygate_shard_timeouts_total", "Calls that the shard did not answer in time.", counter,
			func(h *tallygate.ShardStats) (float64, bool) { return float64(h.Timeouts), true }),
		byShard("tallygate_shard_failures_total", "Calls that count against the shard, timeouts among them.", counter,
			func(h *tallygate.ShardStats) (float64, bool) { return float64(h.Failures), true }),
		byShard("tallygate_shard_breaker_opened_total", "How often the shard was given up on, until a probe found it back.", counter,
			func(h *tallygate.ShardStats) (float64, bool) { return float64(h.Opened), true }),
		byShard("tallygate_shard_behind_total", "Failovers that lost the shard's last spends.", counter,
			func(h *tallygate.ShardStats) (float64, bool) { return float64(h.Behind), true }),
		byShard("tallygate_shard_empty_total", "How often the shard came back without its keys.", counter,
			func(h *tallygate.ShardStats) (float64, bool) { return float64(h.Empty), true }),
		byShard("tallygate_shard_memory_used_bytes", "Memory the shard uses.", gauge,
			func(h *tallygate.ShardStats) (float64, bool) { return float64(h.UsedBytes), h.MemoryKnown }),
		byShard("tallygate_shard_memory_max_bytes", "Memory the shard may use; none where only the machine bounds it.", gauge,
			func(h *tallygate.ShardStats) (float64, bool) {
				return float64(h.MaxBytes), h.MemoryKnown && h.MaxBytes > 0
			}),
		one("tallygate_lost_undos_total", "Buckets that stayed spent for a check that another slot denied.", counter,
			func(s *tallygate.Stats) float64 { return float64(s.Store.LostUndos) }),
	}
}

// byShard is a metric with one series a shard, where it is known.
func byShard(name, help string, kind prometheus.ValueType, value func(*tallygate.ShardStats) (float64, bool)) metric {
	return metric{name: name, help: help, kind: kind, labels: []string{"shard"}, read: func(s *tallygate.Stats, show func(float64, ...string)) {
		for i := range s.Store.Shards {
			if v, known := value(&s.Store.Shards[i]); known {
				show(v, s.Store.Shards[i].Shard)
			}
		}
	}}
}
