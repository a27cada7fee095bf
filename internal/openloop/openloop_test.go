package openloop_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/openloop"
)

// A server that stands still from 100 to 200 ms and takes 1 ms otherwise.
func TestDrive_chargesAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := openloop.Drive(1000, 300*time.Millisecond, func(i int) string {
			if at := time.Since(begin); at >= 100*time.Millisecond && at < 200*time.Millisecond {
				time.Sleep(200*time.Millisecond - at)
				return "stalled"
			}
			time.Sleep(time.Millisecond)
			return "served"
		})
		if len(r.Calls) != 300 || r.Count("stalled") != 100 || r.Count("served") != 200 {
			t.Errorf("%s, want 200 served and 100 stalled", r)
		}
		for _, c := range r.Calls {
			if c.Late != 0 {
				t.Fatalf("a call waited %s for others", c.Late)
			}
		}
		if r.Max() != 100*time.Millisecond {
			t.Errorf("max %s, want the whole stall", r.Max())
		}
		stalled := r.Of("stalled")
		for p, want := range map[float64]time.Duration{50: 50 * time.Millisecond, 99: 99 * time.Millisecond, 0: time.Millisecond} {
			if got := stalled.Percentile(p); got != want {
				t.Errorf("p%v of the stalled = %s, want %s", p, got, want)
			}
		}
		if got := r.Percentile(60); got != time.Millisecond {
			t.Errorf("p60 = %s, want 1ms", got)
		}
		last, ok := stalled.Last()
		if !ok || last.Sub(r.Start) != 199*time.Millisecond {
			t.Errorf("the last stalled was due at %s", last.Sub(r.Start))
		}
		if got := len(r.Between(r.Start.Add(150*time.Millisecond), r.Start.Add(250*time.Millisecond)).Calls); got != 100 {
			t.Errorf("%d calls were due in 100 ms, want 100", got)
		}
		if text := r.String(); !strings.HasPrefix(text, "300 calls: served 200, stalled 100, p50 1ms,") {
			t.Errorf("said %q", text)
		}
	})
}

func TestResult_ofNothing(t *testing.T) {
	t.Parallel()
	r := openloop.Drive(1000, 0, func(int) string { return "" })
	if _, ok := r.Last(); ok || r.Max() != 0 || r.Count("") != 0 {
		t.Errorf("no calls: %s", r)
	}
}

func TestDriveUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(50*time.Millisecond-time.Microsecond, func() { close(stop) })
		if r := openloop.DriveUntil(1000, stop, func(int) string { return "" }); len(r.Calls) < 50 || len(r.Calls) > 51 {
			t.Errorf("%d calls in 50 ms, want 50", len(r.Calls))
		}
	})
}
