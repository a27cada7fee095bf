package sampled_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/sampled"
)

func TestStoreAway(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := sampled.New(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.UnixMilli(1_790_000_000_000)
	for _, step := range []struct {
		name  string
		after time.Duration
		want  string // the end of the line; "" for none
	}{
		{"the first", 0, `level=WARN msg="the store did not answer a check" error=away unlogged=0`},
		{"at once", 0, ""},
		{"too soon", 999 * time.Millisecond, ""},
		{"a second later", time.Millisecond, `level=WARN msg="the store did not answer a check" error=away unlogged=2`},
		{"much later", time.Hour, `level=WARN msg="the store did not answer a check" error=away unlogged=0`},
	} {
		now = now.Add(step.after)
		out.Reset()
		l.StoreAway(now, errors.New("away"))
		if got := strings.TrimSpace(out.String()); (got == "") != (step.want == "") || !strings.HasSuffix(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// Of many at once one is written.
func TestStoreAway_concurrent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := sampled.New(slog.New(slog.NewTextHandler(&out, nil)))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { l.StoreAway(time.UnixMilli(1_790_000_000_000), nil) })
	}
	all.Wait()
	if got := strings.Count(out.String(), "\n"); got != 1 {
		t.Errorf("%d lines, want 1:\n%s", got, out.String())
	}
}
