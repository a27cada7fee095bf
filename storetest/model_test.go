package storetest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/storetest"
)

// clock is an injected clock.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(1_790_000_000_000)
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) Advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// TestModel_suite holds the model to the suite it is the measure of.
func TestModel_suite(t *testing.T) {
	for _, leases := range []bool{false, true} {
		name := map[bool]string{false: "without leases", true: "with leases"}[leases]
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) storetest.Harness {
				c := newClock()
				return storetest.Harness{Store: storetest.NewModel(c.Now, leases), Advance: c.Advance, Leases: leases}
			})
		})
	}
}
