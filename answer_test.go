package tallygate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// WindowMS is the time in which the whole limit comes back.
func TestWindowMS(t *testing.T) {
	t.Parallel()
	day := window("day", limit.FixedWindow, 5, 0)
	day.Window, day.TZ = "day", "Europe/Berlin"
	month := window("month", limit.FixedWindow, 5, 0)
	month.Window = "month"
	c := newClock()
	l := limiter(t, c, bucket("bucket", 3, 1, 10), window("log", limit.SlidingLog, 5, 60), day, month)
	c.ms.Store(time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC).UnixMilli()) // summer time ends: 25 hours
	for rule, want := range map[string]time.Duration{
		"bucket": 3334 * time.Millisecond, "log": time.Minute, "day": 25 * time.Hour, "month": 31 * 24 * time.Hour,
	} {
		e := mustCheck(t, l, ask(rule, "k", 1)).Entries[0]
		if got := time.Duration(e.WindowMS) * time.Millisecond; got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

// More rules than a check may have entries refuse it, before the store is asked.
func TestTooManyRulesMatch(t *testing.T) {
	t.Parallel()
	var set rules.Set
	for i := range 33 {
		set.Rules = append(set.Rules, bucket(fmt.Sprintf("r%d", i), 1, 1, 1))
	}
	fake := &fakeStore{}
	mustFail(t, withStore(t, newClock(), fake, set), tallygate.Check{Attributes: map[string]string{"api_key": "k"}}, tallygate.CodeBadRequest)
	if calls, _ := fake.asked(); calls != 0 {
		t.Errorf("%d store calls", calls)
	}
}

// A shadow rule that refuses shows so, and refuses nothing, with and without a
// store that answers.
func TestShadowDeny(t *testing.T) {
	t.Parallel()
	deny := rules.Rule{ID: "deny", Action: rules.ActionDeny, CoversAll: true, Mode: rules.ModeShadow}
	set := rules.Set{Rules: []rules.Rule{deny, bucket("r", 1, 1, 1)}}
	c := newClock()
	for name, s := range map[string]store.Store{"memory": c.Memory(), "away": &fakeStore{err: errors.New("away")}} {
		v := mustCheck(t, withStore(t, c, s, set), tallygate.Check{Attributes: map[string]string{"api_key": "k"}})
		if !v.Allow || v.DeniedBy != "" || v.Entries[0].Allow || v.Entries[0].Reason != tallygate.ReasonDenied || !v.Entries[1].Allow {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A store that is away fails every check; the log says so once a second.
func TestStoreAwayIsLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	c := newClock()
	var log bytes.Buffer
	l, err := tallygate.New(tallygate.Config{
		Rules: tallygate.Fixed(compile(t, c.Now(), rules.Set{Rules: []rules.Rule{bucket("r", 1, 1, 1)}})),
		Store: &fakeStore{err: errors.New("refused connection")}, Now: c.Now, Deadline: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for range 100 {
			if _, err := l.Check(context.Background(), ask("r", "k", 1)); err != nil {
				t.Fatal(err)
			}
		}
		c.Advance(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "refused connection") || !strings.Contains(lines[1], "unlogged=99") {
		t.Errorf("log:\n%s", &log)
	}
}

// What a caller sent is shown quoted and shortened.
func TestMessagesAreShort(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 1, 1))
	err := mustFail(t, l, ask("\n"+strings.Repeat("x", 10_000), "k", 1), tallygate.CodeUnknownRule)
	if len(err.Message) > 200 || strings.Contains(err.Message, "\n") {
		t.Errorf("message %q", err.Message)
	}
}
