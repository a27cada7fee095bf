package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// The blocks of rights in docs/store.md, in its order.
type rights struct{ all, cluster, sentinel, audit []string }

// documented reads them: what is documented is what is tested.
func documented(t *testing.T) rights {
	t.Helper()
	text, err := os.ReadFile("../docs/store.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## Rights\n")
	if !ok {
		t.Fatal("docs/store.md says nothing of rights")
	}
	parts := strings.Split(section, "```")
	if len(parts) < 8 {
		t.Fatal("docs/store.md has not four blocks of rights")
	}
	block := func(i int) (list []string) {
		for word := range strings.FieldsSeq(parts[2*i+1]) {
			if strings.HasPrefix(word, "+") || strings.HasPrefix(word, "~") {
				list = append(list, word)
			}
		}
		return list
	}
	return rights{all: block(0), cluster: block(1), sentinel: block(2), audit: block(3)}
}

// without is list less one right.
func without(list []string, right string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == right })
}

// as is a configuration with the test's user.
func as(url string) redisstore.Config {
	conf := patient(url)
	conf.Username, conf.Password, conf.Log = "tally", "secret", slog.New(slog.DiscardHandler)
	return conf
}

// refusals are the commands that the server has refused, from its log.
func refusals(t *testing.T, server *redistest.Server) (objects []string) {
	t.Helper()
	rows, _ := server.MustDo(t, "ACL", "LOG", "128").([]any)
	for _, row := range rows {
		words, _ := row.([]any)
		for i := 0; i+1 < len(words); i += 2 {
			if words[i] == "object" {
				objects = append(objects, fmt.Sprint(words[i+1]))
			}
		}
	}
	return objects
}

// exercise does all that a pod does at a store, and returns what failed. kill ends
// the connections of conf's user, refused lists what the servers have refused.
func exercise(t *testing.T, conf redisstore.Config, kill func(), refused func() []string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := redisstore.New(ctx, conf)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var failed error
	note := func(err error) { failed = errors.Join(failed, err) }
	do := func(how store.How, op store.Op) (g store.Grant) {
		op.How = how
		g, err := try(s, op)
		note(err)
		return g
	}
	for _, l := range []*limit.Limit{
		slow(8), window(limit.SlidingWindow, 8, time.Hour), window(limit.FixedWindow, 8, time.Hour), window(limit.SlidingLog, 8, time.Hour),
	} {
		op := take(l.Algorithm.String(), "acl", l)
		g := do(store.Take, op)
		if undo := op; g.Receipt.Cost > 0 {
			undo.Receipt, undo.Cost = g.Receipt, 0
			do(store.Undo, undo)
		}
		leased := op
		leased.Want, leased.Pods, leased.MaxCost = 2, 1, 1
		do(store.Take, leased)
		for _, how := range []store.How{store.Add, store.Back, store.Peek, store.Stamp, store.Reset} {
			do(how, op)
		}
		do(store.Take, op)
	}
	trims(func(op store.Op) { do(store.Take, op) })
	for range 2 {
		_, _, err = s.Beat(ctx, "pod")
		note(err)
	}
	note(s.Leave(ctx, "pod"))
	eventually(t, 10*time.Second, "beats, or that they are refused", func() bool {
		for _, n := range s.Beaten() {
			if n == 0 {
				return len(refused()) > 0
			}
		}
		return true
	})
	kill() // the beat is read on a new connection
	eventually(t, 10*time.Second, "an answer on a new connection, or a refusal", func() bool {
		_, err := try(s, take("again", "acl", slow(100)))
		return err == nil || len(refused()) > 0
	})
	eventually(t, 10*time.Second, "an audit on a new connection, or a refusal", func() bool {
		_, err := s.Audit(ctx)
		return err == nil || len(refused()) > 0
	})
	return failed
}

// trims spends until a log was trimmed: some of its entries have left, others have not,
// for which spends must follow each other faster than a window passes.
func trims(spend func(store.Op)) {
	const length = 100 * time.Millisecond
	brief := take("brief", "acl", window(limit.SlidingLog, 8_000, length))
	began := time.Now()
	for since, last := began, began; last.Sub(since) < 3*length && last.Sub(began) < 5*time.Second; {
		spend(brief)
		time.Sleep(length / 5) // the server's clock has to go on
		now := time.Now()
		if now.Sub(last) > length/2 { // a busy machine: all may have left
			since = now
		}
		last = now
	}
}

// killer ends the connections of the test's user.
func killer(t *testing.T, servers ...*redistest.Server) func() {
	t.Helper()
	return func() {
		for _, server := range servers {
			_, _ = server.Do("CLIENT", "KILL", "USER", "tally")
		}
	}
}

func TestACL_standalone(t *testing.T) {
	t.Parallel()
	doc := documented(t)
	server := redistest.Standalone(t)
	server.DisableDefaultUser(t)
	url, kill := "redis://"+server.Addr, killer(t, server)
	use := func(list []string) error {
		server.MustDo(t, "FLUSHALL")
		server.MustDo(t, "SCRIPT", "FLUSH")
		server.AddUser(t, "tally", "secret", list...)
		server.MustDo(t, "ACL", "LOG", "RESET")
		return exercise(t, as(url), kill, func() []string { return refusals(t, server) })
	}
	all := slices.Concat(doc.all, doc.audit)
	if err := use(all); err != nil {
		t.Errorf("with the documented rights: %v", err)
	}
	if got := refusals(t, server); len(got) != 0 {
		t.Errorf("the documented rights do not suffice: %v refused", got)
	}
	for _, right := range all {
		command := strings.TrimPrefix(right, "+")
		if right == "~tg:*" {
			continue
		}
		_ = use(without(all, right))
		if got := refusals(t, server); !slices.Contains(got, command) {
			t.Errorf("without %s: %v refused, so that it is not needed, or not tested", right, got)
		}
	}
	_ = use(append(without(all, "~tg:*"), "~other:*"))
	if got := refusals(t, server); len(got) == 0 {
		t.Error("without its keys nothing was refused")
	}
}

func TestACL_cluster(t *testing.T) {
	t.Parallel()
	doc := documented(t)
	c := redistest.NewCluster(t)
	all := slices.Concat(doc.all, doc.cluster, doc.audit)
	set := func(list []string) {
		for _, n := range c.Nodes {
			n.AddUser(t, "tally", "secret", list...)
			n.MustDo(t, "ACL", "LOG", "RESET")
		}
	}
	// A slot on its way, for ASK; the default user is needed by the replicas.
	moving := take("moving", "acl", slow(1000))
	slot := c.Slot(t, name(moving))
	from := c.Owner(t, slot)
	primaries := c.Primaries()
	to := primaries[(slices.Index(primaries, from)+1)%len(primaries)]
	must(t, open(t, patient("redis://"+c.Addrs()[0])), moving)
	c.StartMove(t, slot, to)
	c.MoveKeys(t, slot, to, name(moving))
	use := func(list []string) error {
		set(list)
		conf := as("redis://" + c.Addrs()[0])
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s, err := redisstore.New(ctx, conf)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		_, asked := try(s, moving)
		waits := take("waits", "elsewhere", slow(100))
		waits.Replicas = 1
		_, waited := try(s, waits)
		return errors.Join(asked, waited)
	}
	refused := func() (list []string) {
		for _, n := range c.Nodes {
			list = append(list, refusals(t, n)...)
		}
		return list
	}
	if err := use(all); err != nil {
		t.Errorf("with the documented rights: %v", err)
	}
	if err := exercise(t, as("redis://"+c.Addrs()[0]), killer(t, primaries...), refused); err != nil {
		t.Errorf("with the documented rights: %v", err)
	}
	if got := refused(); len(got) != 0 {
		t.Errorf("the documented rights do not suffice: %v refused", got)
	}
	for _, right := range doc.cluster {
		_ = use(without(all, right))
		if got := refused(); !slices.Contains(got, strings.TrimPrefix(right, "+")) {
			t.Errorf("without %s: %v refused, so that it is not needed, or not tested", right, got)
		}
	}
}

func TestACL_sentinel(t *testing.T) {
	t.Parallel()
	doc := documented(t)
	set := redistest.Sentinel(t)
	servers := []*redistest.Server{set.Primary, set.Replica}
	all := slices.Concat(doc.all, doc.sentinel, doc.audit)
	for _, n := range servers {
		n.AddUser(t, "tally", "secret", all...)
	}
	conf := as("redis+sentinel://" + strings.Join(set.Addrs(), ",") + "/" + redistest.SentinelName)
	refused := func() []string { return append(refusals(t, set.Primary), refusals(t, set.Replica)...) }
	if err := exercise(t, conf, killer(t, servers...), refused); err != nil {
		t.Errorf("with the documented rights: %v", err)
	}
	if got := refused(); len(got) != 0 {
		t.Errorf("the documented rights do not suffice: %v refused", got)
	}
	set.Primary.AddUser(t, "tally", "secret", without(all, "+role")...)
	set.Primary.MustDo(t, "ACL", "LOG", "RESET")
	_ = exercise(t, conf, func() {}, refused)
	if got := refusals(t, set.Primary); !slices.Contains(got, "role") {
		t.Errorf("without +role: %v refused", got)
	}
}

// TestACL_closedStaysClosed: a store that refuses us is no reason to let pass what
// must not pass without it, and none to give up on the shard.
func TestACL_closedStaysClosed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		user, password string
		breaks         func(*testing.T, *redistest.Server)
		word           string
	}{
		"NOPERM": {"tally", "secret", func(t *testing.T, server *redistest.Server) {
			t.Helper()
			server.MustDo(t, "ACL", "SETUSER", "tally", "-eval", "-evalsha")
		}, "NOPERM"},
		"NOAUTH": {"", "", func(t *testing.T, server *redistest.Server) {
			t.Helper()
			server.DisableDefaultUser(t)
			server.MustDo(t, "CLIENT", "KILL", "USER", "default")
		}, "NOAUTH"},
		"WRONGPASS": {"tally", "secret", func(t *testing.T, server *redistest.Server) {
			t.Helper()
			server.MustDo(t, "ACL", "SETUSER", "tally", "resetpass", ">another")
			server.MustDo(t, "CLIENT", "KILL", "USER", "tally")
		}, "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Standalone(t)
			server.AddUser(t, "tally", "secret", documented(t).all...)
			conf := as("redis://" + server.Addr)
			conf.Username, conf.Password = row.user, row.password
			conf.BreakerFailures = 50 // killed connections are failures; rights must be none
			s := open(t, conf)
			l := limiter(t, s)
			for i, rule := range []string{"open", "closed"} {
				if v, err := check(l, rule, strconv.Itoa(i)); err != nil || !v.Allow || v.Degraded != "" {
					t.Fatalf("%s: %+v, %v", rule, v, err)
				}
			}
			row.breaks(t, server)
			for i := range 10 {
				if _, err := check(l, "closed", strconv.Itoa(i)); tallygate.CodeOf(err) != tallygate.CodeStoreUnavailable {
					t.Errorf("closed: %v, want %s", err, tallygate.CodeStoreUnavailable)
				}
				if v, err := check(l, "open", strconv.Itoa(i)); err != nil || !v.Allow || v.Degraded == "" {
					t.Errorf("open: %+v, %v, want allowed and degraded", v, err)
				}
			}
			if _, err := try(s, take("r", "k", slow(5))); err == nil || !strings.Contains(err.Error(), row.word) {
				t.Errorf("%v, want %s", err, row.word)
			}
			if h := s.Health().Shards[0]; h.Opened != 0 {
				t.Errorf("health %+v: it counts against the shard", h)
			}
		})
	}
}

// limiter has an open rule and a closed one on the store, both exact.
func limiter(t *testing.T, s store.Store) *tallygate.Limiter {
	t.Helper()
	var set rules.Set
	for id, mode := range map[string]rules.FailMode{"open": rules.FailOpen, "closed": rules.FailClosed} {
		set.Rules = append(set.Rules, rules.Rule{
			ID: id, CoversAll: true, Identity: []string{"api_key"}, Algorithm: limit.SlidingLog,
			Numbers: rules.Numbers{Limit: 100, WindowS: 60}, FailMode: mode,
		})
	}
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Deadline: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func check(l *tallygate.Limiter, rule, key string) (tallygate.Verdict, error) {
	return l.Check(context.Background(), tallygate.Check{Entries: []tallygate.Entry{{Rule: rule, Key: []string{key}, Cost: 1}}})
}
