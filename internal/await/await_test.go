package await

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// judge is a test that notes how it ended.
type judge struct {
	testing.TB

	said string
}

func (*judge) Helper() {}

func (j *judge) Fatalf(format string, args ...any) {
	j.said = fmt.Sprintf(format, args...)
	panic(j)
}

func TestThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, asked := time.Now(), 0
		That(t, "the third time", func() bool { asked++; return asked == 3 })
		if took := time.Since(start); asked != 3 || took != 2*every {
			t.Errorf("asked %d times in %s, want 3 in %s", asked, took, 2*every)
		}
	})
}

func TestThat_never(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, j := time.Now(), &judge{}
		defer func() {
			if recover() != any(j) || !strings.Contains(j.said, "not within 1m0s: pigs fly") {
				t.Errorf("it said %q", j.said)
			}
			if took := time.Since(start); took < hangs || took > hangs+2*every {
				t.Errorf("it took %s, want %s", took, hangs)
			}
		}()
		That(j, "pigs fly", func() bool { return false })
	})
}
