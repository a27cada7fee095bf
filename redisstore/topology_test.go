package redisstore

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
)

// newTestTopology is one that is connected to nothing.
func newTestTopology(t *testing.T, seeds ...string) *topology {
	t.Helper()
	s := &Store{conf: Config{URL: "redis://" + strings.Join(seeds, ","), Tags: identity.Plain{}}, bySlot: true}
	if err := s.conf.validate(); err != nil {
		t.Fatal(err)
	}
	options, err := s.conf.options()
	if err != nil {
		t.Fatal(err)
	}
	s.options = options
	s.topology = newTopology(s)
	t.Cleanup(func() { s.topology.close(); s.work.Wait() })
	return s.topology
}

// halves is a view of two primaries.
func halves(epoch int64, a, b string) view {
	return view{epoch: epoch, ranges: []slotRange{
		{from: 0, to: 8191, id: "id-" + a, addr: a, replicas: []string{a + "0"}},
		{from: 8192, to: slots - 1, id: "id-" + b, addr: b},
	}}
}

func TestAdopt_epochs(t *testing.T) {
	t.Parallel()
	topo := newTestTopology(t, "a:1")
	topo.adopt(halves(5, "a:1", "b:1"))
	a := topo.owner(0)
	topo.adopt(halves(4, "c:1", "d:1"))
	if topo.owner(0) != a {
		t.Error("a view of an earlier epoch was taken over")
	}
	topo.adopt(view{epoch: 9, ranges: []slotRange{}})
	if topo.owner(0) != a || len(topo.shards()) != 2 {
		t.Error("a view without slots was taken over")
	}
	topo.adopt(halves(5, "a:1", "c:1"))
	if topo.owner(0) != a || topo.owner(9000).addr != "c:1" {
		t.Error("a view of the same epoch changes what has changed, and no more")
	}
	topo.adopt(view{epoch: 6, ranges: []slotRange{{from: 0, to: 100, id: "id-a:1", addr: "a:1"}}})
	if topo.owner(0) != a || topo.owner(101) != nil || len(topo.shards()) != 1 {
		t.Error("slots that nobody has are still sent to who had them")
	}
	// The same primary at another address is another connection.
	topo.adopt(view{epoch: 7, ranges: []slotRange{{from: 0, to: slots - 1, id: "id-a:1", addr: "a:2"}}})
	if h := topo.owner(0); h == a || h.addr != "a:2" {
		t.Errorf("owner %s, want a:2", h.addr)
	}
}

func TestView_later(t *testing.T) {
	t.Parallel()
	whole, part := halves(5, "a:1", "b:1"), view{epoch: 5, ranges: []slotRange{{from: 0, to: 9}}}
	for name, row := range map[string]struct {
		a, b view
		want bool
	}{
		"a later epoch":               {halves(6, "a:1", "b:1"), whole, true},
		"an earlier one":              {whole, halves(6, "a:1", "b:1"), false},
		"knows more":                  {whole, part, true},
		"knows less":                  {part, whole, false},
		"the same":                    {whole, whole, false},
		"a later one that knows less": {view{epoch: 6, ranges: part.ranges}, whole, true},
	} {
		if got := row.a.later(&row.b); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

// TestAdopt_beats: who follows a primary answers for what that one has acknowledged.
func TestAdopt_beats(t *testing.T) {
	t.Parallel()
	topo := newTestTopology(t, "a:1")
	topo.adopt(halves(5, "a:1", "b:1"))
	a, b := topo.owner(0), topo.owner(9000)
	for _, h := range []*shard{a, b} {
		if slot := Slot(h.marks.tag); h.marks.tag == "" || topo.owner(slot) != h {
			t.Fatalf("the tag %q of %s is in slot %d of another", h.marks.tag, h.addr, slot)
		}
	}
	a.marks.acked, a.marks.ackedNS = 7, 1
	topo.adopt(halves(6, "r:1", "b:1"))
	r := topo.owner(0)
	if r == a || r.marks.tag != a.marks.tag || r.marks.acked != 7 || !r.suspect {
		t.Errorf("the promoted one has %+v, suspect %v; want the beat of the old one, to be read first", r.marks, r.suspect)
	}
	if topo.owner(9000) != b || b.suspect {
		t.Error("the other primary is another one, or suspect")
	}
	// A primary that loses the slot of its beat gets another one.
	tag := Slot(b.marks.tag)
	topo.adopt(view{epoch: 7, ranges: []slotRange{
		{from: 0, to: tag, id: "id-r:1", addr: "r:1"}, {from: tag + 1, to: slots - 1, id: "id-b:1", addr: "b:1"},
	}})
	if b.marks.tag == "" || topo.owner(Slot(b.marks.tag)) != b || b.marks.acked != 0 {
		t.Errorf("b has %+v, want a new beat in a slot of its own", b.marks)
	}
	if r.marks.acked != 7 {
		t.Errorf("r has %+v, want its own beat", r.marks)
	}
}

func TestAdopt_seeds(t *testing.T) {
	t.Parallel()
	topo := newTestTopology(t, "a:1", "x:1")
	topo.seed("a:1")
	topo.seed("x:1")
	named := topo.seeds["a:1"]
	named.dials.Add(1) // it was asked who owns the slots
	topo.adopt(halves(5, "a:1", "b:1"))
	if topo.seeds["a:1"] == named {
		t.Error("the settings' server keeps a connection beside those of the primary")
	}
	for _, addr := range []string{"a:1", "x:1", "a:10"} {
		if topo.seeds[addr] == nil {
			t.Errorf("%s is no seed", addr)
		}
	}
	for _, n := range topo.candidates() {
		if n == topo.seeds["a:1"] {
			t.Error("a primary is asked by a connection of its own")
		}
	}
	topo.adopt(halves(6, "a:1", "b:1"))
	next := halves(7, "a:1", "b:1")
	next.ranges[0].replicas = nil
	topo.adopt(next)
	if topo.seeds["a:10"] != nil || topo.seeds["x:1"] == nil {
		t.Errorf("seeds %v, want those that the settings name", topo.seeds)
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	topo := newTestTopology(t, "a:1")
	topo.adopt(halves(5, "a:1", "b:1"))
	if topo.at("b:1") != topo.owner(9000) {
		t.Error("a known address is another shard")
	}
	h := topo.moved(17, "new:1")
	if topo.owner(17) != h || topo.at("new:1") != h || len(topo.kicked) != 1 {
		t.Error("a slot that moved is not taken over, or nobody is asked")
	}
}

// TestParseSlots: a server that answers something else is an error, not a panic.
func TestParseSlots(t *testing.T) {
	server := redistest.SharedStandalone(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answer := func(lua string) rueidis.RedisResult {
		return client.Do(t.Context(), client.B().Eval().Script("return "+lua).Numkeys(0).Build())
	}
	for name, lua := range map[string]string{
		"no list":            "'x'",
		"a number":           "7",
		"rows are no lists":  "{'x'}",
		"a short row":        "{{0, 100}}",
		"slots are words":    "{{'a', 'b', {'h', 1, 'id'}}}",
		"slots below 0":      "{{-1, 5, {'h', 1, 'id'}}}",
		"slots above all":    "{{0, 16384, {'h', 1, 'id'}}}",
		"slots in reverse":   "{{9, 3, {'h', 1, 'id'}}}",
		"a node is no list":  "{{0, 5, 'h'}}",
		"a short node":       "{{0, 5, {'h', 1}}}",
		"a port is a word":   "{{0, 5, {'h', 'x', 'id'}}}",
		"a node has no id":   "{{0, 5, {'h', 1, false}}}",
		"an error":           "redis.error_reply('CLUSTERDOWN no')",
		"a replica is wrong": "{{0, 5, {'h', 1, 'id'}, {'h'}}}",
	} {
		if got, err := parseSlots(answer(lua), "asked:1"); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
	got, err := parseSlots(answer("{{0, 5, {'', 7000, 'me'}, {'h', 7001, 'r', {'hostname', 'x'}}}, {6, 9, {false, 7002, 'n'}}, {10, 10, {'?', 7003, 'q'}}}"), "asked:1")
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	for i, want := range []string{net.JoinHostPort("asked", "7000"), "asked:7002", "asked:7003"} {
		if got[i].addr != want {
			t.Errorf("row %d: %s, want %s: an empty host is who was asked", i, got[i].addr, want)
		}
	}
	if r := got[0].replicas; len(r) != 1 || r[0] != "h:7001" {
		t.Errorf("replicas %v", r)
	}
}
