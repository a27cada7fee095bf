package newcomers_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/newcomers"
)

func TestGate(t *testing.T) {
	t.Parallel()
	var g newcomers.Gate
	now := time.UnixMilli(1_790_000_000_000)
	for _, step := range []struct {
		name  string
		after time.Duration
		perS  int64
		want  int // of 20 that ask
	}{
		{"as many at once as in a second", 0, 10, 10},
		{"half a second later", 500 * time.Millisecond, 10, 5},
		{"less than one's time", 99 * time.Millisecond, 10, 0},
		{"the rest of it", time.Millisecond, 10, 1},
		{"never more than a second's", time.Hour, 10, 10},
		{"a clock that steps back brings nothing", -time.Hour, 10, 0},
		{"and goes on from there", 200 * time.Millisecond, 10, 2},
		{"at most a billion a second", time.Second, 1_000_000_000, 20},
		{"a rule with less now", 0, 3, 3},
	} {
		now = now.Add(step.after)
		got := 0
		for range 20 {
			if g.Admit(now, step.perS) {
				got++
			}
		}
		if got != step.want {
			t.Errorf("%s: %d let in, want %d", step.name, got, step.want)
		}
	}
}

func TestGate_concurrent(t *testing.T) {
	t.Parallel()
	var g newcomers.Gate
	var in atomic.Int64
	var all sync.WaitGroup
	now := time.UnixMilli(1_790_000_000_000)
	for range 4 {
		all.Go(func() {
			for range 100 {
				if g.Admit(now, 50) {
					in.Add(1)
				}
			}
		})
	}
	all.Wait()
	if got := in.Load(); got != 50 {
		t.Errorf("%d let in, want 50", got)
	}
}
