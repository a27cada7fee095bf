package calls_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/calls"
	"github.com/tallygate/tallygate/store"
)

var epoch = time.UnixMilli(1_790_000_000_000)

// fake is a store that takes some time and answers as told.
type fake struct {
	now    time.Time
	took   time.Duration
	grants []store.Grant
	err    error
}

func (f *fake) Take(context.Context, []store.Op) ([]store.Grant, error) {
	f.now = f.now.Add(f.took)
	return f.grants, f.err
}

func TestCalls(t *testing.T) {
	t.Parallel()
	strange := errors.New("strange")
	away := func(kind store.ErrorKind) error { return &store.StoreError{Kind: kind, Shard: "a:1", Err: strange} }
	for _, tt := range []struct {
		name  string
		err   error
		shard string
		want  calls.Figures
	}{
		{"an answer", nil, "", calls.Figures{Calls: 1}},
		{"a timeout", away(store.Timeout), "a:1", calls.Figures{Calls: 1, Timeouts: 1}},
		{"unavailable", away(store.Unavailable), "a:1", calls.Figures{Calls: 1, Unavailable: 1}},
		{"refused", away(store.Refused), "a:1", calls.Figures{Calls: 1, Refused: 1}},
		{"an error that is not the store's", strange, "", calls.Figures{Calls: 1, Unavailable: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &fake{now: epoch, took: 3 * time.Millisecond, err: tt.err}
			var c calls.Calls
			var seen, too []calls.Call
			c.Watch(func(call calls.Call) { seen = append(seen, call) })
			c.Watch(func(call calls.Call) { too = append(too, call) })
			if _, err := c.Of(f, func() time.Time { return f.now }).Take(context.Background(), nil); !errors.Is(err, tt.err) {
				t.Errorf("%v, want the store's %v", err, tt.err)
			}
			if got := c.Figures(); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			want := calls.Call{Shard: tt.shard, Took: 3 * time.Millisecond, Err: tt.err}
			if len(seen) != 1 || len(too) != 1 || seen[0] != want || too[0] != want {
				t.Errorf("told %+v and %+v, want %+v once each", seen, too, want)
			}
		})
	}
}

// The store read its clock in the middle of the call, as far as the pod can know. A
// call that tells no time leaves the offset, and a clock that steps back takes none.
func TestCalls_clock(t *testing.T) {
	t.Parallel()
	f := &fake{now: epoch, took: 4 * time.Millisecond}
	var c calls.Calls
	s := c.Of(f, func() time.Time { return f.now })
	var took time.Duration
	c.Watch(func(call calls.Call) { took = call.Took })
	for _, step := range []struct {
		name   string
		grants []store.Grant
		offset time.Duration
		known  bool
	}{
		{"no time yet", []store.Grant{{OK: true}}, 0, false},
		{"the first that has one", []store.Grant{{OK: true}, {OK: true, NowMS: epoch.UnixMilli() + 76}}, 70 * time.Millisecond, true},
		{"none again", nil, 70 * time.Millisecond, true},
	} {
		f.grants = step.grants
		if _, err := s.Take(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if got := c.Figures(); got.ClockOffset != step.offset || got.ClockKnown != step.known {
			t.Errorf("%s: %s, known %t; want %s, %t", step.name, got.ClockOffset, got.ClockKnown, step.offset, step.known)
		}
	}
	f.took = -time.Hour
	if _, _ = s.Take(context.Background(), nil); took != 0 {
		t.Errorf("a call took %s, want 0", took)
	}
}
