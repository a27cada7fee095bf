package redisstore

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/breaker"
)

const second = int64(time.Second)

func TestBeat_judge(t *testing.T) {
	known := beat{tag: "0", sent: 9, acked: 7, ackedNS: second}
	for name, row := range map[string]struct {
		beat  beat
		now   int64
		read  int64
		found bool
		want  breaker.Finding
	}{
		"as acknowledged":       {known, 2 * second, 7, true, breaker.Current},
		"sent and not answered": {known, 2 * second, 9, true, breaker.Current},
		"older":                 {known, 2 * second, 6, true, breaker.Behind},
		"missing":               {known, 2 * second, 0, false, breaker.Empty},
		"missing since expired": {known, 3602 * second, 0, false, breaker.Current},
		"never acknowledged":    {beat{tag: "0", sent: 3}, second, 0, false, breaker.Current},
	} {
		if got := row.beat.judge(row.now, row.read, row.found); got != row.want {
			t.Errorf("%s: %d, want %d", name, got, row.want)
		}
	}
}
