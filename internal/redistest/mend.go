package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Mend undoes whatever was done to the cluster and empties it: no partition, no
// weather, right clocks, every node runs, no slot is moving, three primaries with
// a replica each. Who is primary, and whose a moved slot is, stays as it came: a
// test asks. It takes no time where nothing is broken.
func (c *ProxiedCluster) Mend(t testing.TB) {
	t.Helper()
	if err := c.partition.heal(); err != nil {
		t.Fatal(err)
	}
	for i, n := range c.Nodes {
		n.Resume(t)
		if n.clock != nil {
			n.clock.Set(t, 0)
		}
		if n.process().gone() {
			n.Restart(t)
		}
		c.Proxies[i].Pass(t)
	}
	for end := time.Now().Add(settleTimeout); ; time.Sleep(pollEvery) {
		err := c.pair()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the cluster does not mend: ", err)
		}
	}
	for _, n := range c.Primaries() {
		n.MustDo(t, "FLUSHALL")
	}
	if err := c.stable(); err != nil {
		t.Fatal(err)
	}
	if err := c.Settled(); err != nil {
		t.Fatal(err)
	}
}

// pair gives each owner of slots one replica. Other than by an election nobody
// becomes an owner, so one that has no replica got lost of it. It returns an error
// as long as that is not so.
func (c *Cluster) pair() error {
	owners := map[int]int{} // an owner's port → its replicas
	var covered int64
	for _, r := range c.ranges() {
		if r.owner != nil {
			owners[r.owner.announced] = 0
			covered += r.to - r.from + 1
		}
	}
	if covered != slots || len(owners) != primaries {
		return fmt.Errorf("%d slots of %d primaries are served", covered, len(owners))
	}
	var spare []*Server
	for _, n := range c.Nodes {
		if _, owns := owners[n.announced]; owns {
			continue
		}
		at := n.follows()
		if had, ok := owners[at]; ok && had == 0 {
			owners[at] = 1
		} else {
			spare = append(spare, n)
		}
	}
	for port, has := range owners {
		if has > 0 || len(spare) == 0 {
			continue
		}
		id, err := c.announcing(int64(port)).ID()
		if err != nil {
			return err
		}
		if _, err := spare[0].Do("CLUSTER", "REPLICATE", id); err != nil {
			return fmt.Errorf("give %d a replica: %w", port, err)
		}
		spare = spare[1:]
	}
	return nil
}

// stable ends moves of slots that were begun.
func (c *Cluster) stable() error {
	for _, n := range c.Primaries() {
		reply, err := n.Do("CLUSTER", "NODES")
		if err != nil {
			return err
		}
		text, _ := reply.(string)
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "myself") {
				continue
			}
			for word := range strings.FieldsSeq(line) {
				// [slot->-id] moves away, [slot-<-id] comes.
				if slot, _, open := strings.Cut(strings.TrimPrefix(word, "["), "-"); open && strings.HasPrefix(word, "[") {
					if _, err := n.Do("CLUSTER", "SETSLOT", slot, "STABLE"); err != nil {
						return fmt.Errorf("end the move of slot %s: %w", slot, err)
					}
				}
			}
		}
	}
	return nil
}
