package redistest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// wrong is how far a server's clock is from ours.
func wrong(t *testing.T, s *redistest.Server) time.Duration {
	t.Helper()
	before := time.Now()
	reply, _ := s.MustDo(t, "TIME").([]any)
	took := time.Since(before)
	for took > time.Second/4 { // long on its way, it tells too little
		before = time.Now()
		reply, _ = s.MustDo(t, "TIME").([]any)
		took = time.Since(before)
	}
	seconds, _ := reply[0].(string)
	micros, _ := reply[1].(string)
	sec, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	us, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(sec, us*1000).Sub(before.Add(took / 2)).Round(time.Second / 2)
}

func TestClock(t *testing.T) {
	t.Parallel()
	s := redistest.WithClock(t)
	for _, want := range []time.Duration{0, 10 * time.Second, -10 * time.Second, 0} {
		s.Clock(t).Set(t, want)
		if got := wrong(t, s); got != want {
			t.Errorf("the clock is wrong by %s, want %s", got, want)
		}
	}
	s.MustDo(t, "SET", "k", "v", "PX", "4000")
	s.Clock(t).Set(t, 10*time.Second)
	if got := s.MustDo(t, "GET", "k"); got != nil {
		t.Errorf("a key of 4 s after a jump of 10 s = %v, want it expired", got)
	}
	s.Restart(t)
	if got := wrong(t, s); got != 10*time.Second {
		t.Errorf("after a restart the clock is wrong by %s, want 10s", got)
	}
}
