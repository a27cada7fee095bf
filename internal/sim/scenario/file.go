package scenario

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// file is a scenario as written.
type file struct {
	About     string    `yaml:"about"`
	Pods      integer   `yaml:"pods"`
	DurationS float64   `yaml:"duration_s"`
	Store     network   `yaml:"store"`
	Shards    integer   `yaml:"shards"`
	Rules     []rule    `yaml:"rules"`
	Traffic   []traffic `yaml:"traffic"`
	Faults    faults    `yaml:"faults"`
}

type network struct {
	LatencyMS  float64 `yaml:"latency_ms"`
	JitterMS   float64 `yaml:"jitter_ms"`
	PatienceMS float64 `yaml:"patience_ms"`
}

type rule struct {
	ID        string  `yaml:"id"`
	Algorithm string  `yaml:"algorithm"`
	Rate      integer `yaml:"rate"`
	PerS      integer `yaml:"per_s"`
	Burst     integer `yaml:"burst"`
	Limit     integer `yaml:"limit"`
	WindowS   integer `yaml:"window_s"`
	MaxCost   integer `yaml:"max_cost"`
	MaxLease  integer `yaml:"max_lease"`
	Counting  string  `yaml:"counting"`
	SyncMS    float64 `yaml:"sync_ms"`
	PreLimit  string  `yaml:"pre_limit"`

	FailMode        string     `yaml:"fail_mode"`
	ClosedAllowance *allowance `yaml:"closed_allowance"`
}

type allowance struct {
	Times float64 `yaml:"times"`
}

type traffic struct {
	Rules    []string `yaml:"rules"`
	FirstKey integer  `yaml:"first_key"`
	Keys     integer  `yaml:"keys"`
	Rate     float64  `yaml:"rate"`
	Pinned   integer  `yaml:"pinned"`
	Cost     integer  `yaml:"cost"`
	Arrival  string   `yaml:"arrival"`
}

type faults struct {
	LostReply      float64 `yaml:"lost_reply"`
	TimedOutButRan float64 `yaml:"timed_out_but_ran"`
	ClockStep      []step  `yaml:"clock_step"`
	PodCrash       []crash `yaml:"pod_crash"`
	PodPause       []pause `yaml:"pod_pause"`
	Autoscale      []scale `yaml:"autoscale"`

	ShardDown     []down     `yaml:"shard_down"`
	ShardSlow     []slow     `yaml:"shard_slow"`
	ShardFlap     []flap     `yaml:"shard_flap"`
	ShardRestart  []restart  `yaml:"shard_restart"`
	ShardFailover []failover `yaml:"shard_failover"`
}

type down struct {
	AtS   float64 `yaml:"at_s"`
	Shard integer `yaml:"shard"`
	ForS  float64 `yaml:"for_s"`
	How   string  `yaml:"how"`
}

type slow struct {
	AtS    float64 `yaml:"at_s"`
	Shard  integer `yaml:"shard"`
	ForS   float64 `yaml:"for_s"`
	Times  float64 `yaml:"times"`
	PlusMS float64 `yaml:"plus_ms"`
}

type flap struct {
	AtS   float64 `yaml:"at_s"`
	Shard integer `yaml:"shard"`
	DownS float64 `yaml:"down_s"`
	UpS   float64 `yaml:"up_s"`
	Times integer `yaml:"times"`
	How   string  `yaml:"how"`
}

type restart struct {
	AtS   float64 `yaml:"at_s"`
	Shard integer `yaml:"shard"`
}

type failover struct {
	AtS    float64 `yaml:"at_s"`
	Shard  integer `yaml:"shard"`
	LostMS float64 `yaml:"lost_ms"`
}

type step struct {
	AtS float64 `yaml:"at_s"`
	MS  float64 `yaml:"ms"`
}

type crash struct {
	AtS float64 `yaml:"at_s"`
	Pod integer `yaml:"pod"`
}

type pause struct {
	AtS float64 `yaml:"at_s"`
	Pod integer `yaml:"pod"`
	MS  float64 `yaml:"ms"`
}

type scale struct {
	AtS  float64 `yaml:"at_s"`
	Pods integer `yaml:"pods"`
}

// integer is a whole number. The parser alone would cut 1.5 down to 1 and read
// "2" as well.
type integer int64

// UnmarshalYAML reads decimal digits.
func (n *integer) UnmarshalYAML(node ast.Node) error {
	tk := node.GetToken()
	x, err := strconv.ParseInt(tk.Value, 10, 64)
	if err != nil || tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType {
		return fmt.Errorf("%d:%d: %q is not a whole number", tk.Position.Line, tk.Position.Column, tk.Value)
	}
	*n = integer(x)
	return nil
}
