package unlimited_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/unlimited"
)

// lines are what was logged, the time and the level aside.
func lines(b *bytes.Buffer) (list []string) {
	for line := range strings.Lines(b.String()) {
		_, attrs, _ := strings.Cut(line, "has rules\" ")
		list = append(list, strings.TrimSpace(attrs))
	}
	return list
}

func logger(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestOneLineAMinute(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	n := unlimited.To(logger(&b))
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for _, at := range []time.Duration{0, time.Second, time.Minute - time.Millisecond, time.Minute, 5 * time.Minute} {
		n.Passed(start.Add(at), "nowhere")
	}
	want := []string{"domain=nowhere passed=1", "domain=nowhere passed=3", "domain=nowhere passed=1"}
	if got := lines(&b); !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestTheDomainThatIsNotSetIsNamed(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	unlimited.To(logger(&b)).Passed(time.Now(), "")
	for _, part := range []string{"level=WARN", "requests pass unlimited: there is no rule in their domain", "set Domain (--domain)", "domain=default"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%q lacks %q", b.String(), part)
		}
	}
}

func TestOfEnvoyTheFixIsInEnvoy(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	unlimited.ToEnvoys(logger(&b)).Passed(time.Now(), "nowhere")
	for _, part := range []string{"give Envoy's rate limit filter a domain that has rules", "domain=nowhere"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%q lacks %q", b.String(), part)
		}
	}
}

func TestManyAtOnceAreOneLine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	n := unlimited.To(logger(&b))
	now := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { n.Passed(now, "nowhere") })
	}
	all.Wait()
	if got := strings.Count(b.String(), "\n"); got != 1 {
		t.Errorf("%d lines, want 1: %s", got, b.String())
	}
}
