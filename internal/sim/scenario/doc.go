// Package scenario reads what package sim runs from YAML.
//
//	about: a hot key below its limit
//	pods: 50
//	duration_s: 60
//	store: { latency_ms: 1, jitter_ms: 0, patience_ms: 5 }
//	rules:
//	  - { id: hot, algorithm: token_bucket, rate: 25000, burst: 50000 }
//	traffic:
//	  - { rules: [hot], rate: 20000 }
//
// The fields of a rule mean what they do in a rules file; counting is lease, exact
// or async, pre_limit is limit (once the limit), fair_share (twice) or off. Those of traffic: rules
// are the buckets of each check, keys how many keys there are, from first_key on
// (1, from 0), rate the checks a second of each, pinned to how many pods a key's
// checks go (all), cost what each spends (1), arrival poisson or even (poisson).
// Under faults stand lost_reply and timed_out_but_ran, in percent of calls, and
// lists of clock_step, pod_crash, pod_pause and autoscale, and what happens to shards
// of the store, of which there are shards (1): shard_down, shard_slow, shard_flap,
// shard_restart (without its keys) and shard_failover (without the last writes). How a
// rule's checks are answered then say fail_mode (open) and closed_allowance.
//
// Unknown fields are refused, with line and column.
package scenario
