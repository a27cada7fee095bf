package scenario

import (
	"fmt"
	"math"

	"github.com/tallygate/tallygate/internal/sim"
)

// failMode reads what a rule says of a store that does not answer.
func (r *rule) failMode(x *sim.Rule) error {
	switch r.FailMode {
	case "", "open":
	case "closed":
		x.Closed = true
	default:
		return fmt.Errorf("fail_mode %q is none of open, closed", r.FailMode)
	}
	if r.ClosedAllowance == nil {
		return nil
	}
	milli := r.ClosedAllowance.Times * 1000
	if !(milli >= 1 && milli <= 1000) || math.Abs(milli-math.Round(milli)) > 1e-9 { // NaN is in no range
		return fmt.Errorf("closed_allowance.times %g is not from 0.001 to 1 in thousandths", r.ClosedAllowance.Times)
	}
	x.AllowanceMilli = int64(math.Round(milli))
	return nil
}

// store reads what happens to shards.
func (f *faults) store() (x sim.StoreFaults, err error) {
	for _, d := range f.ShardDown {
		hangs, err := hangs(d.How)
		if err != nil {
			return x, fmt.Errorf("shard_down: %w", err)
		}
		x.Downs = append(x.Downs, sim.Down{At: seconds(d.AtS), Shard: int(d.Shard), For: seconds(d.ForS), Hangs: hangs})
	}
	for _, p := range f.ShardFlap {
		hangs, err := hangs(p.How)
		if err != nil {
			return x, fmt.Errorf("shard_flap: %w", err)
		}
		x.Flaps = append(x.Flaps, sim.Flap{
			At: seconds(p.AtS), Shard: int(p.Shard), Down: seconds(p.DownS), Up: seconds(p.UpS), Times: int(p.Times), Hangs: hangs,
		})
	}
	for _, s := range f.ShardSlow {
		x.Slows = append(x.Slows, sim.Slow{
			At: seconds(s.AtS), Shard: int(s.Shard), For: seconds(s.ForS), Times: orElse(s.Times, 1), Plus: milliseconds(s.PlusMS),
		})
	}
	for _, r := range f.ShardRestart {
		x.Restarts = append(x.Restarts, sim.Restart{At: seconds(r.AtS), Shard: int(r.Shard)})
	}
	for _, o := range f.ShardFailover {
		x.Failovers = append(x.Failovers, sim.Failover{At: seconds(o.AtS), Shard: int(o.Shard), Lost: milliseconds(o.LostMS)})
	}
	return x, nil
}

// hangs reads how a shard is down.
func hangs(how string) (bool, error) {
	switch how {
	case "", "refuses":
		return false, nil
	case "hangs":
		return true, nil
	}
	return false, fmt.Errorf("how %q is none of refuses, hangs", how)
}
