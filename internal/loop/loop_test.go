package loop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tallygate/tallygate/internal/loop"
)

func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l loop.Loop
		var started, ended atomic.Int32
		run := func(ctx context.Context) {
			started.Add(1)
			<-ctx.Done()
			ended.Add(1)
		}
		l.Start(run)
		l.Start(run)
		synctest.Wait()
		if started.Load() != 1 || ended.Load() != 0 || l.Closed() {
			t.Errorf("%d started, %d ended, closed %v", started.Load(), ended.Load(), l.Closed())
		}
		l.Close()
		if ended.Load() != 1 || !l.Closed() {
			t.Error("Close did not wait for the end")
		}
		l.Close()
		l.Start(run)
		synctest.Wait()
		if started.Load() != 1 {
			t.Error("started after Close")
		}
	})
}

func TestLoopThatNeverRan(t *testing.T) {
	t.Parallel()
	var l loop.Loop
	l.Close()
	if !l.Closed() {
		t.Error("not closed")
	}
}
