package tallygate_test

import (
	"context"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/rules"
)

// slowBucket is a limiter in front of a store elsewhere, with a token an hour.
func slowBucket(t testing.TB) *tallygate.Limiter {
	t.Helper()
	c := newClock()
	l, err := tallygate.New(tallygate.Config{
		Rules: tallygate.Fixed(compile(t, c.Now(), rules.Set{Rules: []rules.Rule{bucket("r", 1, 3600, 5)}})),
		Store: &elsewhere{store: c.Memory()}, Now: c.Now, Deadline: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A look at an empty bucket does not make the pod tell who asks next a wait that is not
// enough.
func TestLook_leavesTheWait(t *testing.T) {
	l := slowBucket(t)
	for _, check := range []tallygate.Check{ask("r", "k", 5), look("r", "k")} {
		if v, err := l.Check(context.Background(), check); err != nil || !v.Allow {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	v, err := l.Check(context.Background(), ask("r", "k", 1))
	if err != nil || v.Allow || v.RetryMS < 3_600_000 {
		t.Errorf("%+v, %v; want the hour that a token takes", v, err)
	}
}

// What a pod tells by itself is enough for a slow bucket too.
func TestRetry_ofSlowBuckets(t *testing.T) {
	l := slowBucket(t)
	if v, err := l.Check(context.Background(), ask("r", "k", 5)); err != nil || !v.Allow {
		t.Fatalf("%+v, %v", v, err)
	}
	for range 3 {
		if v, err := l.Check(context.Background(), ask("r", "k", 1)); err != nil || v.Allow || v.RetryMS < 3_600_000 {
			t.Errorf("%+v, %v; want the hour that a token takes", v, err)
		}
	}
}
