package storetest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/store"
)

// concurrentCases are promises under concurrency. Run them with -race.
func concurrentCases() []testCase {
	return []testCase{
		{name: "exactly the limit passes", run: exactlyTheLimit},
		{name: "two buckets are spent together", run: spentTogether},
		{name: "crossed orders do not block", run: crossedOrders},
	}
}

const (
	callers = 32
	tokens  = 300
)

// storm makes calls from all callers at once until each has made so many, and
// returns how many were allowed by all ops.
func (s *subject) storm(each int, ops func(caller, call int) []store.Op) int64 {
	s.Helper()
	var allowed atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for call := range each {
				grants, err := s.Store.Take(context.Background(), ops(caller, call))
				if err != nil {
					s.Errorf("Take: %v", err)
					return
				}
				ok := true
				for _, g := range grants {
					ok = ok && g.OK
				}
				if ok {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return allowed.Load()
}

func exactlyTheLimit(s *subject) {
	for _, l := range four(tokens) {
		op := s.op(l.Algorithm.String(), l, 1)
		got := s.storm(2*tokens/callers, func(int, int) []store.Op { return []store.Op{op} })
		want(s, l.String()+" allowed", got, tokens)
		s.wantLeft(op, 0)
	}
}

func spentTogether(s *subject) {
	for _, l := range four(tokens) {
		big, small := s.op("big "+l.Algorithm.String(), slowBucket(2*tokens), 1), s.op("small "+l.Algorithm.String(), l, 1)
		got := s.storm(2*tokens/callers, func(caller, _ int) []store.Op {
			if caller%2 == 0 {
				return []store.Op{small, big}
			}
			return []store.Op{big, small}
		})
		want(s, l.String()+" allowed", got, tokens)
		s.wantLeft(small, 0)
		s.wantLeft(big, tokens)
	}
}

func crossedOrders(s *subject) {
	const rules, plenty = 12, 5000
	ops := make([]store.Op, rules)
	for i := range ops {
		ops[i] = s.op(string(rune('a'+i)), slowBucket(plenty), 1)
	}
	got := s.storm(40, func(caller, call int) []store.Op {
		first, second := (caller+call)%rules, (caller+7*call+1)%rules
		if first == second {
			second = (second + 1) % rules
		}
		return []store.Op{ops[first], ops[second]}
	})
	want(s, "allowed", got, callers*40)
	spent := int64(0)
	for _, op := range ops {
		spent += plenty - s.left(op)
	}
	want(s, "spent", spent, 2*callers*40)
}
