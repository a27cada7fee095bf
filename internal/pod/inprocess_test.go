package pod_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// untelling is a store that does not tell what it has.
type untelling struct{ store.Appender }

func TestInProcess(t *testing.T) {
	t.Parallel()
	memory := store.NewMemoryStore(store.MemoryConfig{})
	ops := []store.Op{{Bucket: store.Bucket{Rule: "r", Key: "k"}, Limit: &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 10}, Cost: 4, MaxCost: 10}}
	for _, tells := range []bool{true, false} {
		var s store.Appender = memory
		if !tells {
			s = untelling{memory}
		}
		p := pod.NewInProcess(s)
		if p.Meet(&ops[0], pod.Terms{}); p.Knows(ops[0].Bucket, pod.Terms{}) == tells {
			t.Errorf("knows a new bucket: %t, of a store that tells: %t", !tells, tells)
		}
	}

	p := pod.NewInProcess(memory)
	terms := []pod.Terms{{Counting: pod.Lease}}
	g, err := p.AppendTake(context.Background(), nil, ops, terms)
	if err != nil || !g[0].OK || g[0].Remaining != 6 || g[0].Source != store.FromStore {
		t.Fatalf("%+v, %v, want the store's answer", g, err)
	}
	if !p.Knows(ops[0].Bucket, terms[0]) {
		t.Error("does not know a bucket that the store has")
	}
	back := ops[0]
	back.How, back.Cost = store.Back, 3
	if g, err = p.GiveBack(context.Background(), g[:0], []store.Op{back}, terms); err != nil || g[0].Remaining != 9 {
		t.Errorf("%+v, %v, want 9 left", g, err)
	}
}

// Without the store a rule that fails closed refuses, unless it lets the key pass.
func TestInProcess_away(t *testing.T) {
	t.Parallel()
	open, closed, passes := pod.Instead{Milli: pod.OpenShare}, pod.Instead{}, pod.Instead{Pass: true}
	for name, tt := range map[string]struct {
		rules []pod.Instead
		want  int
	}{
		"open":            {[]pod.Instead{open, open}, pod.NoneClosed},
		"the second":      {[]pod.Instead{open, closed, closed}, 1},
		"a key that may":  {[]pod.Instead{passes, open}, pod.NoneClosed},
		"it may not both": {[]pod.Instead{passes, closed}, 1},
	} {
		grants, got := pod.NewInProcess(nil).AppendAway(nil, nil, nil, tt.rules, errors.New("full"))
		if got != tt.want || len(grants) != 0 {
			t.Errorf("%s: op %d refuses, want %d; %v granted", name, got, tt.want, grants)
		}
	}
}
