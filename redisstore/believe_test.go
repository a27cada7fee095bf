package redisstore

import (
	"testing"
)

// TestTopology_madeAnew: one view of an earlier epoch is of who is cut off; when
// nobody says otherwise any more, it is another cluster.
func TestTopology_madeAnew(t *testing.T) {
	topo := newTestTopology(t, "a:1")
	topo.adopt(halves(12, "a:1", "b:1"))
	for n := range believeOlder {
		if got := topo.owner(1).addr; got != "a:1" {
			t.Fatalf("after %d views of an earlier epoch the owner is %s", n, got)
		}
		topo.adopt(halves(6, "c:1", "d:1"))
	}
	if got := topo.owner(1).addr; got != "c:1" {
		t.Errorf("after %d views of an earlier epoch the owner is %s, want c:1", believeOlder, got)
	}
}

// TestTopology_movedIsDoubted: who takes over a slot by a redirection is asked for the
// beat of who had it, and stays the same shard when the next view names it.
func TestTopology_movedIsDoubted(t *testing.T) {
	topo := newTestTopology(t, "a:1")
	topo.adopt(halves(5, "a:1", "b:1"))
	before := topo.owner(1)
	before.marks.acked, before.marks.ackedNS = 7, 1
	h := topo.moved(1, "c:1")
	if !h.suspect || h.marks.tag != before.marks.tag || h.marks.acked != 7 {
		t.Errorf("the shard of a redirection: suspect %v, beat %+v; want that of the one before", h.suspect, h.marks)
	}
	topo.adopt(halves(6, "c:1", "b:1"))
	if topo.owner(1) != h {
		t.Error("the next view made another shard, which has forgotten what was found")
	}
	if topo.owner(1) == before || len(topo.retired) != 1 {
		t.Errorf("%d shards are retired, want the one before", len(topo.retired))
	}
}

// TestTopology_closed: a redirection that comes after the end opens nothing.
func TestTopology_closed(t *testing.T) {
	topo := newTestTopology(t, "a:1")
	topo.adopt(halves(5, "a:1", "b:1"))
	topo.close()
	if h := topo.moved(1, "c:1"); h.fast.add(&call{}) == nil {
		t.Error("a shard made after the end takes calls")
	}
}
