package sim

import "github.com/tallygate/tallygate/internal/algorithm"

// RunSpoiled is Run in front of a store with a planted fault: spoil changes each
// bucket after each op.
func RunSpoiled(c Config, spoil func(*algorithm.State)) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f := newFleet(&c)
	f.store.spoil = spoil
	f.run()
	return f.result(), nil
}
