package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// beats has a pod beat and returns what it is told.
func beats(t testing.TB, s *redisstore.Store, pod string) (live int64, joined bool) {
	t.Helper()
	live, joined, err := s.Beat(context.Background(), pod)
	if err != nil {
		t.Fatalf("Beat(%s): %v", pod, err)
	}
	return live, joined
}

func TestBeat(t *testing.T) {
	for name, url := range map[string]func(*testing.T) (string, *redistest.Server){
		"standalone": func(t *testing.T) (string, *redistest.Server) {
			t.Helper()
			s := redistest.Standalone(t)
			return s.Addr, s
		},
		"cluster": func(t *testing.T) (string, *redistest.Server) {
			t.Helper()
			c := redistest.SharedCluster(t)
			return c.Addrs()[0], c.Owner(t, c.Slot(t, "tg:pods"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr, server := url(t)
			s := open(t, patient("redis://"+addr))
			server.MustDo(t, "DEL", "tg:pods")
			for i := range 75 {
				if live, joined := beats(t, s, "pod-"+strconv.Itoa(i)); live != int64(i+1) || !joined {
					t.Fatalf("beat %d: %d live, joined %v", i, live, joined)
				}
			}
			if live, joined := beats(t, s, "pod-7"); live != 75 || joined {
				t.Errorf("a second beat: %d live, joined %v, want 75 and not", live, joined)
			}
			if ttl, _ := server.MustDo(t, "PTTL", "tg:pods").(int64); ttl < 1 || ttl > 6000 {
				t.Errorf("the set lives for %d ms, want up to 6 s", ttl)
			}
			// Twenty beat for the last time six seconds ago; one a little less.
			for i := range 20 {
				server.MustDo(t, "ZINCRBY", "tg:pods", "-6000", "pod-"+strconv.Itoa(i))
			}
			beats(t, s, "pod-20")
			server.MustDo(t, "ZINCRBY", "tg:pods", "-4000", "pod-20")
			if live, _ := beats(t, s, "pod-74"); live != 55 {
				t.Errorf("%d live after twenty fell silent, want 55", live)
			}
			if err := errors.Join(s.Leave(context.Background(), "pod-30"), s.Leave(context.Background(), "nobody")); err != nil {
				t.Error(err)
			}
			if live, _ := beats(t, s, "pod-74"); live != 54 {
				t.Errorf("%d live after one left, want 54", live)
			}
			if live, joined := beats(t, s, "pod-0"); live != 55 || !joined {
				t.Errorf("back again: %d live, joined %v, want 55 and joined", live, joined)
			}
			server.MustDo(t, "SCRIPT", "FLUSH")
			if live, joined := beats(t, s, "pod-0"); live != 55 || joined {
				t.Errorf("to a server without the script: %d live, joined %v", live, joined)
			}
		})
	}
}

// A clock that stepped back by an hour leaves no pod alive that is dead, and
// drops none that lives.
func TestBeat_clockSteppedBack(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	for i := range 150 {
		server.MustDo(t, "ZADD", "tg:pods", ahead, "pod-"+strconv.Itoa(i))
	}
	server.MustDo(t, "PEXPIRE", "tg:pods", "60000")
	for range 2 {
		if live, _ := beats(t, s, "pod-0"); live != 150 {
			t.Fatalf("%d live, want all 150", live)
		}
	}
	now := time.Now().UnixMilli()
	if n, _ := server.MustDo(t, "ZCOUNT", "tg:pods", "-inf", strconv.FormatInt(now+1000, 10)).(int64); n != 150 {
		t.Errorf("%d beats count as of now, want all 150", n)
	}
}

func TestBeat_errors(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	for _, pod := range []string{"", strings.Repeat("x", 257)} {
		_, _, err := s.Beat(context.Background(), pod)
		refusedUnsent(t, err)
		refusedUnsent(t, s.Leave(context.Background(), pod))
	}
	server.MustDo(t, "SET", "tg:pods", "x")
	if _, _, err := s.Beat(context.Background(), "a"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("over a key of another type: %v", err)
	}
	server.MustDo(t, "DEL", "tg:pods")

	server.Pause(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, _, err := s.Beat(ctx, "a")
	var e *store.StoreError
	if !errors.As(err, &e) || e.Kind != store.Timeout || !e.Sent {
		t.Errorf("a server that hangs: %v, want a timeout", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %s", took)
	}
	server.Resume(t)

	_ = s.Close()
	_, _, err = s.Beat(context.Background(), "a")
	if !errors.As(err, &e) || e.Kind != store.Unavailable || e.Sent {
		t.Errorf("after Close: %v", err)
	}
}

func refusedUnsent(t testing.TB, err error) {
	t.Helper()
	var e *store.StoreError
	if !errors.As(err, &e) || e.Kind != store.Refused || e.Sent {
		t.Errorf("err = %v, want refused and not sent", err)
	}
}

// counting is a store that counts a pod's beats.
type counting struct {
	*redisstore.Store
	beats atomic.Int64
}

func (c *counting) Beat(ctx context.Context, pod string) (int64, bool, error) {
	live, joined, err := c.Store.Beat(ctx, pod)
	if err == nil {
		c.beats.Add(1)
	}
	return live, joined, err
}

// member is one pod of a fleet, with the count it was told and at which of its beats.
type member struct {
	*redisstore.Members
	store      counting
	live, told atomic.Int64
}

type fleet []*member

func (f *fleet) grow(t *testing.T, s *redisstore.Store, n int) {
	t.Helper()
	for range n {
		p := &member{store: counting{Store: s}}
		m, err := redisstore.NewMembers(redisstore.MembersConfig{
			Store: &p.store, Pod: fmt.Sprintf("pod-%d", len(*f)),
			OnCount: func(n int64) { p.live.Store(n); p.told.Store(p.store.beats.Load()) },
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Members = m
		p.Start(t.Context())
		*f = append(*f, p)
	}
	eventually(t, 20*time.Second, "all have joined", func() bool {
		return !slices.ContainsFunc(*f, func(p *member) bool { return p.store.beats.Load() == 0 })
	})
}

// know waits until all pods know of as many as there are, and fails if that takes one
// of them more than so many beats from now, and the one under way.
func (f *fleet) know(t *testing.T, beats int64) {
	t.Helper()
	before := make([]int64, len(*f))
	for i, p := range *f {
		before[i] = p.store.beats.Load()
	}
	eventually(t, 30*time.Second, fmt.Sprintf("all %d know of each other", len(*f)), func() bool {
		return !slices.ContainsFunc(*f, func(p *member) bool { return p.live.Load() != int64(len(*f)) })
	})
	for i, p := range *f {
		if took := p.told.Load() - before[i]; took > beats+1 {
			t.Errorf("pod %d of %d knew after %d beats, want %d", i, len(*f), took, beats)
		}
	}
}

// TestMembers_scale: a fleet that grows from 50 to 75 pods knows it by the next beat of
// each, and one whose pods close knows that too.
func TestMembers_scale(t *testing.T) {
	s := open(t, patient("redis://"+redistest.Standalone(t).Addr))
	var pods fleet
	defer func() {
		for _, p := range pods {
			_ = p.Close()
		}
	}()
	pods.grow(t, s, 50)
	pods.know(t, 1)
	pods.grow(t, s, 25)
	pods.know(t, 1)
	var group sync.WaitGroup
	for _, p := range pods[30:] {
		group.Go(func() {
			if err := errors.Join(p.Close(), p.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	pods = pods[:30]
	pods.know(t, 3) // the newest are not sure of lower counts yet
}

// fakeBeater answers beats as told.
type fakeBeater struct {
	mu     sync.Mutex // guards what follows
	live   int64
	joined bool
	err    error
	hangs  bool
	beats  int
	left   []string
}

func (f *fakeBeater) Beat(ctx context.Context, _ string) (int64, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats++
	if f.hangs {
		<-ctx.Done()
		return 0, false, ctx.Err()
	}
	joined := f.joined
	f.joined = false
	return f.live, joined, f.err
}

func (f *fakeBeater) Leave(_ context.Context, pod string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = append(f.left, pod)
	return f.err
}

// TestMembers: which counts a pod believes, beat by beat.
func TestMembers(t *testing.T) {
	away := errors.New("away")
	for name, steps := range map[string][]struct {
		live   int64
		joined bool
		err    error
		want   int64 // what the pod counts with then
	}{
		"counts as told": {
			{1, true, nil, 1}, {2, false, nil, 2}, {75, false, nil, 75}, {75, false, nil, 75}, {50, false, nil, 50}, {49, false, nil, 49},
		},
		"a new pod believes lower counts after three beats": {
			{75, true, nil, 75}, {3, false, nil, 75}, {3, false, nil, 75}, {3, false, nil, 3},
		},
		"an outage at the start": {
			{0, false, away, 0}, {0, false, away, 0}, {1, true, nil, 1}, {75, false, nil, 75},
		},
		"the last count stays during an outage, and until all had time to beat": {
			{75, true, nil, 75},
			{75, false, nil, 75},
			{75, false, nil, 75},
			{0, false, away, 75},
			{0, false, away, 75},
			{0, false, away, 75},
			{0, false, away, 75},
			{1, true, nil, 75},
			{60, false, nil, 75},
			{74, false, nil, 75},
			{74, false, nil, 74},
		},
		"a higher count is believed at once": {
			{75, true, nil, 75}, {0, false, away, 75}, {80, false, nil, 80}, {79, false, nil, 80},
		},
		"a store that forgot": {
			{75, true, nil, 75},
			{75, false, nil, 75},
			{75, false, nil, 75},
			{75, false, nil, 75},
			{1, true, nil, 75},
			{40, false, nil, 75},
			{75, false, nil, 75},
			{70, false, nil, 70},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeBeater{live: steps[0].live, joined: steps[0].joined, err: steps[0].err}
				var live int64
				told := 0
				m, err := redisstore.NewMembers(redisstore.MembersConfig{Store: f, Pod: "p", OnCount: func(n int64) { live = n; told++ }})
				if err != nil {
					t.Fatal(err)
				}
				m.Start(t.Context())
				m.Start(t.Context())
				changes, last := 0, int64(0)
				for i, step := range steps {
					f.mu.Lock()
					f.live, f.joined, f.err = step.live, step.joined, step.err
					f.mu.Unlock()
					if i > 0 {
						time.Sleep(redisstore.BeatEvery)
					}
					synctest.Wait()
					if live != step.want {
						t.Errorf("after beat %d: %d pods, want %d", i+1, live, step.want)
					}
					if step.want != last {
						changes++
					}
					last = step.want
				}
				if f.beats != len(steps) || told != changes {
					t.Errorf("%d beats, told %d times; want %d and %d", f.beats, told, len(steps), changes)
				}
				if err := m.Close(); !errors.Is(err, f.err) || len(f.left) != 1 || f.left[0] != "p" {
					t.Errorf("Close: %v, left %v", err, f.left)
				}
			})
		})
	}
}

// A store that hangs holds up neither the next beat nor Close.
func TestMembers_hang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBeater{hangs: true}
		m, err := redisstore.NewMembers(redisstore.MembersConfig{Store: f, Pod: "p", OnCount: func(int64) {}})
		if err != nil {
			t.Fatal(err)
		}
		m.Start(t.Context())
		time.Sleep(5*redisstore.BeatEvery + time.Second)
		synctest.Wait()
		start := time.Now()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %s", took)
		}
		if f.beats < 5 {
			t.Errorf("%d beats in 11 s of a store that hangs", f.beats)
		}
	})
}

func TestMembers_neverStarted(t *testing.T) {
	f := new(fakeBeater)
	m, err := redisstore.NewMembers(redisstore.MembersConfig{Store: f, Pod: "p", OnCount: func(int64) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil || len(f.left) != 0 {
		t.Errorf("Close: %v, left %v", err, f.left)
	}
	m.Start(t.Context()) // too late, and does nothing
	if f.beats != 0 {
		t.Error("it beats after Close")
	}
}

func TestNewMembers_errors(t *testing.T) {
	told := func(int64) {}
	for what, conf := range map[string]redisstore.MembersConfig{
		"Store":   {Pod: "p", OnCount: told},
		"OnCount": {Store: new(fakeBeater), Pod: "p"},
		"0":       {Store: new(fakeBeater), OnCount: told},
		"257":     {Store: new(fakeBeater), Pod: strings.Repeat("x", 257), OnCount: told},
		"Every":   {Store: new(fakeBeater), Pod: "p", OnCount: told, Every: -1},
	} {
		if _, err := redisstore.NewMembers(conf); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
