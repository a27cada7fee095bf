package main

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// costFit tells of rules that refuse every request of the proxy, since its cost does not
// fit them. It may be used by any number of goroutines.
type costFit struct {
	domain *ruleDomain
	cost   int64
	// reserves says that the cost is an estimate, until the answer tells it.
	reserves bool
	log      *slog.Logger

	mu   sync.Mutex // guards told
	told []string
}

// look tells what the rules in force come to, where it has not told that last.
func (f *costFit) look() {
	at := f.domain.look()
	found := unfit(at.snapshot.Domain(at.name), f.cost, f.reserves)
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(found, f.told) {
		return
	}
	f.told = found
	const most = 10
	for _, text := range found[:min(most, len(found))] {
		f.log.Error("a rule refuses the proxy's requests for their cost", "fault", text)
	}
	if more := len(found) - most; more > 0 {
		f.log.Error("more rules refuse the proxy's requests for their cost", "more", more)
	}
}

// unfit says of each enforced rule that no request of this cost passes, and why. What is
// in shadow mode refuses nothing.
func unfit(d *rules.Domain, cost int64, reserves bool) (found []string) {
	if d == nil {
		return nil
	}
	for _, r := range d.Rules() {
		switch {
		case r.Shadow() || r.Action() != rules.ActionLimit:
		case r.MaxCost() < cost:
			found = append(found, fmt.Sprintf("--cost %d is above max_cost %d of rule %s: requests that it matches get 500; give the rule a max_cost of %d or more, or lower --cost",
				cost, r.MaxCost(), r.ID(), cost))
		case !reserves || r.Counting() == rules.CountingReport:
		case r.Rule().Algorithm == limit.SlidingLog:
			found = append(found, fmt.Sprintf("--cost-header needs rules whose costs can change, and rule %s is a sliding_log: requests that it matches get 500; make it a token_bucket, sliding_window or fixed_window",
				r.ID()))
		case r.Counting() == rules.CountingLocal:
			found = append(found, fmt.Sprintf("--cost-header needs rules that all pods count, and rule %s has counting local: requests that it matches get 500; make it lease or exact", r.ID()))
		}
	}
	return found
}
