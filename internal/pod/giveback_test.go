package pod_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// asked is a store that answers by a function.
type asked func(ops []store.Op) ([]store.Grant, error)

func (a asked) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) { return a(ops) }

// A remembered denial and the pre-limit do not outlive what is given back.
func TestGiveBackForgetsTheDenial(t *testing.T) {
	t.Parallel()
	hour := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 10, WindowMS: 3_600_000, Revision: 2}
	clock := time.UnixMilli(1_790_035_200_000)
	memory := store.NewMemoryStore(store.MemoryConfig{Now: func() time.Time { return clock }})
	takes := 0
	r := pod.NewRunner(asked(func(ops []store.Op) ([]store.Grant, error) {
		takes++
		return memory.Take(context.Background(), ops)
	}), 0, time.Minute)
	defer func() { _ = r.Close() }()
	ops := []store.Op{{Bucket: store.Bucket{Domain: "d", Rule: "r", Key: "k"}, Limit: hour, Cost: 10, Want: 100, Pods: 1, MaxCost: 10}}
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}
	take := func(cost int64) store.Grant {
		t.Helper()
		ops[0].Cost = cost
		grants, err := r.AppendTake(context.Background(), nil, ops, terms)
		if err != nil {
			t.Fatal(err)
		}
		return grants[0]
	}
	take(10)
	take(1)
	before := takes
	if g := take(1); g.OK || takes != before {
		t.Fatalf("the denial is not remembered: %+v after %d calls", g, takes-before)
	}
	back := ops[0]
	back.How, back.Cost, back.Want = store.Back, 4, 0
	grants, err := r.GiveBack(context.Background(), nil, []store.Op{back}, terms)
	if err != nil || !grants[0].OK || grants[0].Remaining != 4 {
		t.Fatalf("given back: %+v, %v", grants, err)
	}
	if g := take(4); !g.OK {
		t.Errorf("what was given back is denied: %+v", g)
	}
}

func TestGiveBackSaysWhatFailed(t *testing.T) {
	t.Parallel()
	hour := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 10, WindowMS: 3_600_000, Revision: 2}
	away := errors.New("away")
	r := pod.NewRunner(asked(func([]store.Op) ([]store.Grant, error) { return nil, away }), 0, time.Minute)
	defer func() { _ = r.Close() }()
	ops := []store.Op{{How: store.Back, Bucket: store.Bucket{Domain: "d", Rule: "r", Key: "k"}, Limit: hour, Cost: 1, Pods: 1}}
	if _, err := r.GiveBack(context.Background(), nil, ops, []pod.Terms{{}}); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
	// What the pod counts alone needs no store.
	if g, err := r.GiveBack(context.Background(), nil, ops, []pod.Terms{{Counting: pod.Local}}); err != nil || g[0].Source != store.FromLocal {
		t.Errorf("local: %+v, %v", g, err)
	}
}
