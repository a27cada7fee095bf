package redistest

import (
	"fmt"
	"strconv"
	"testing"
)

// StartMove opens a slot for moving: from then on its owner answers ASK for keys
// it lacks and TRYAGAIN for calls of which it has only some keys, and so does to.
func (c *Cluster) StartMove(t testing.TB, slot int, to *Server) {
	t.Helper()
	from, number := c.Owner(t, slot), strconv.Itoa(slot)
	to.MustDo(t, "CLUSTER", "SETSLOT", number, "IMPORTING", mustID(t, from))
	from.MustDo(t, "CLUSTER", "SETSLOT", number, "MIGRATING", mustID(t, to))
}

// MoveKeys moves these keys of a slot that is open for moving.
func (c *Cluster) MoveKeys(t testing.TB, slot int, to *Server, keys ...string) {
	t.Helper()
	args := []string{"MIGRATE", to.Host, strconv.Itoa(to.Port), "", "0", "5000", "KEYS"}
	c.Owner(t, slot).MustDo(t, append(args, keys...)...)
}

// FinishMove moves what is left in a slot and makes to its owner in the eyes of all
// nodes: a replica that is promoted before it has heard of the move takes the slot for
// nobody's, and leaves it to its old primary.
func (c *Cluster) FinishMove(t testing.TB, slot int, to *Server) {
	t.Helper()
	from, number, id := c.Owner(t, slot), strconv.Itoa(slot), mustID(t, to)
	for {
		reply, _ := from.MustDo(t, "CLUSTER", "GETKEYSINSLOT", number, "100").([]any)
		if len(reply) == 0 {
			break
		}
		keys := make([]string, len(reply))
		for i, k := range reply {
			keys[i], _ = k.(string)
		}
		c.MoveKeys(t, slot, to, keys...)
	}
	to.MustDo(t, "CLUSTER", "SETSLOT", number, "NODE", id)
	for _, n := range c.Primaries() {
		if n != to {
			n.MustDo(t, "CLUSTER", "SETSLOT", number, "NODE", id)
		}
	}
	for _, n := range c.Replicas() { // which hear of it from the primaries
		err := n.waitFor(settleTimeout, "hear of a slot's move", func() error {
			ranges, err := c.rangesBy(n)
			if owner := ownerIn(ranges, slot); err == nil && owner != to {
				err = fmt.Errorf("slot %d is still another's", slot)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
