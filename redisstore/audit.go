package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

// Finding is one thing about a server that an operator should know before its
// counts are relied on.
type Finding struct {
	// Shard is the server's address; "" of what is said of all of them together.
	Shard string
	// Level says how much it matters.
	Level Level
	// Setting is what was looked at, Value what it is; "" if it could not be read.
	Setting, Value string
	// Message says what follows and what to do.
	Message string
}

// Level says how much a finding matters.
type Level string

// The levels.
const (
	// Broken: checks get no answer there, so that rules that fail closed refuse.
	Broken Level = "broken"
	// Warning: limits are not held, or the store fails, under some fault or load.
	Warning Level = "warning"
	// Advice: it is well, and could be better for some rules.
	Advice Level = "advice"
	// Unread: it could not be looked at.
	Unread Level = "unread"
)

// String returns the finding as one line.
func (f Finding) String() string {
	where := cmp.Or(f.Shard, "store")
	if f.Value == "" {
		return fmt.Sprintf("%s: %s: %s", where, f.Setting, f.Message)
	}
	return fmt.Sprintf("%s: %s is %q: %s", where, f.Setting, f.Value, f.Message)
}

// Server is one primary as it was found.
type Server struct {
	Node
	// Role is "primary" or "replica" and Version the server's; "" where INFO may not
	// be read.
	Role, Version string
	// RoundTrip is the shortest of a few questions, ClockOffset the server's clock
	// less ours; both are 0 where Err is set.
	RoundTrip, ClockOffset time.Duration
	// Err is why it could not be asked.
	Err error
}

// inspectWithin bounds the questions to one server.
const inspectWithin = 3 * time.Second

// errNoPrimary is of a store of which nothing takes writes.
var errNoPrimary = errors.New("none of the servers is a primary")

// Audit is [Store.Inspect] without the servers.
func (s *Store) Audit(ctx context.Context) ([]Finding, error) {
	_, found, err := s.Inspect(ctx)
	return found, err
}

// Inspect looks at every primary: its settings, its clock, and whether the script
// runs there, with nothing to do. It returns what was found and what an operator
// should know. Settings it has no right to read are findings too. It fails only if
// no primary can be asked.
func (s *Store) Inspect(ctx context.Context) ([]Server, []Finding, error) {
	var found []Finding
	var servers []Server
	asked := 0
	last := errNoPrimary
	if s.bySlot {
		found = s.unowned()
	}
	for _, n := range s.Primaries() {
		h := s.topology.shardAt(n.Addr)
		if h == nil {
			continue // it has just gone
		}
		within, cancel := context.WithTimeout(ctx, inspectWithin)
		a := audit{store: s, server: Server{Node: n}}
		a.run(within, h)
		cancel()
		switch {
		case a.server.Err != nil:
			last = a.server.Err
		case a.server.Role != replica:
			asked++
		}
		servers, found = append(servers, a.server), append(found, a.found...)
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Setting, b.Setting))
	})
	if asked == 0 {
		return servers, found, fmt.Errorf("no primary could be asked: %w", last)
	}
	return servers, found, nil
}

// unowned tells of slots that no primary serves: their checks are never answered.
func (s *Store) unowned() []Finding {
	missing := 0
	for slot := range slots {
		if s.topology.owner(slot) == nil {
			missing++
		}
	}
	if missing == 0 {
		return nil
	}
	return []Finding{{
		Level: Broken, Setting: "slots", Value: fmt.Sprintf("%d of %d without an owner", missing, slots),
		Message: "no check of a key in them is answered: look at 'redis-cli --cluster check' and give them to a primary with 'redis-cli --cluster fix'",
	}}
}

// audit looks at one server.
type audit struct {
	store  *Store
	server Server
	node   rueidis.Client
	found  []Finding
}

func (a *audit) add(level Level, setting, value, message string) {
	a.found = append(a.found, Finding{Shard: a.server.Addr, Level: level, Setting: setting, Value: value, Message: message})
}

// unread tells of what may not be looked at.
func (a *audit) unread(setting string, err error, advice string) {
	a.add(Unread, setting, "", "could not read: "+err.Error()+"; "+advice)
}

func (a *audit) do(ctx context.Context, words ...string) rueidis.RedisResult {
	return a.node.Do(ctx, a.node.B().Arbitrary(words...).Build())
}

// run asks everything of one server, as far as it answers.
func (a *audit) run(ctx context.Context, h *shard) {
	node, err := h.slow.node.ready()
	if err == nil {
		a.node = node
		err = a.clock(ctx)
	}
	if err != nil {
		a.server.Err = err
		a.add(Broken, "reachable", "no", "it does not answer: "+err.Error()+"; look whether it runs, at the network between and at name and password")
		return
	}
	if a.role(ctx); a.server.Role == replica {
		a.add(Broken, "role", replica, "it takes no writes: name its primary, or wait for the end of a failover")
		return
	}
	a.script(ctx)
	a.version(ctx)
	a.memory(ctx)
	a.defaultUser(ctx)
	a.settings(ctx)
	if a.store.bySlot && len(a.server.Replicas) == 0 {
		a.add(Warning, "replicas", "0", "when it is lost, its slots are not served until it is back: give it a replica")
	}
}
