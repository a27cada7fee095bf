package feed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// startHub starts a hub that has a set.
func startHub(t testing.TB, d *database, change func(*feed.HubConfig)) *feed.Hub {
	t.Helper()
	h := newHub(t, d, change)
	h.Start()
	await.That(t, "the hub is ready", h.Ready)
	return h
}

// serve serves a hub on the loopback; it is closed before the hub's clean-up.
func serve(t testing.TB, h *feed.Hub) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		_ = h.Close()
		server.Close()
	})
	return server
}

// get asks and reads the answer.
func get(t testing.TB, server *httptest.Server, query string) wire.Answer {
	t.Helper()
	resp, err := server.Client().Get(server.URL + "/v1/changes" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a wire.Answer
	if err := a.Decode(json.NewDecoder(resp.Body)); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", query, resp.StatusCode, err)
	}
	return a
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.now = time.Now().Add(time.Hour)
	d.put("a", 1)
	h := startHub(t, d, func(c *feed.HubConfig) { c.Keep = 4 })
	server := serve(t, h)
	for _, revision := range []func() int64{
		func() int64 { return d.put("b", 1) }, // 2
		func() int64 { return d.remove("a", 2) },
		func() int64 { return d.put("b", 2) }, // 4
		func() int64 { return d.reset("b", "k") },
	} {
		want := revision() // one by one, or the hub sees one change of b only
		await.That(t, "the change", func() bool { return h.Revision() == want })
	}

	for _, tt := range []struct {
		name, query string
		whole       bool
		want        string
	}{
		{"everything", "", true, "b2 reset k"},
		{"everything, said", "?since=0", true, "b2 reset k"},
		{"all that is remembered", "?since=1", false, "a- b2 reset k"},
		{"some", "?since=3", false, "b2 reset k"},
		{"only a reset", "?since=4", false, "reset k"},
		{"nothing", "?since=5", false, ""},
		{"nothing, after a wait", "?since=5&wait=10ms", false, ""},
		{"of a newer database", "?since=6&wait=60s", true, "b2 reset k"},
	} {
		a := get(t, server, tt.query)
		var got []string
		for _, r := range a.Rules {
			got = append(got, r.ID+map[bool]string{true: "-", false: fmt.Sprint(r.Version)}[r.Deleted])
		}
		for _, r := range a.Resets {
			got = append(got, "reset "+r.Key[0])
		}
		if text := strings.Join(got, " "); a.Whole != tt.whole || text != tt.want || a.Revision != 5 || a.Hash != d.current().Hash {
			t.Errorf("%s: whole %v, %q at %d, want %v, %q at 5", tt.name, a.Whole, text, a.Revision, tt.whole, tt.want)
		}
		if ahead := time.Until(a.Now); ahead < 59*time.Minute || ahead > 61*time.Minute {
			t.Errorf("%s: now is %v ahead, want the database's hour", tt.name, ahead)
		}
	}

	d.put("c", 1) // 6: revision 2 is forgotten
	await.That(t, "one more", func() bool { return h.Revision() == 6 })
	if a := get(t, server, "?since=1"); !a.Whole {
		t.Error("a question from before what is remembered got changes")
	}
	if a := get(t, server, "?since=2"); a.Whole || len(a.Rules) != 3 {
		t.Errorf("what is remembered: whole %v, %d rules", a.Whole, len(a.Rules))
	}
}

func TestQuestionsThatAreRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	server := serve(t, startHub(t, d, nil))
	for _, tt := range []struct {
		method, query, id string
		status            int
		says              string
	}{
		{"GET", "?since=-1", "", 400, "since is"},
		{"GET", "?since=1e3", "", 400, "since is"},
		{"GET", "?since=9223372036854775808", "", 400, "since is"},
		{"GET", "?since=1&since=2", "", 400, "give it once"},
		{"GET", "?wait=61s", "", 400, "0s to 60s"},
		{"GET", "?wait=30", "", 400, "0s to 60s"},
		{"GET", "?wait=-1s", "", 400, "0s to 60s"},
		{"GET", "?until=1", "", 400, "unknown"},
		{"GET", "?since=%zz", "", 400, "cannot be read"},
		{"GET", "", "x", 400, "Last-Event-ID"},
		{"POST", "", "", 405, "use GET"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.id != "" {
			req.Header.Set("Last-Event-ID", tt.id)
			req.Header.Set("Accept", "text/event-stream")
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.says) || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s", tt.method, tt.query, resp.StatusCode, body)
		}
	}
}

func TestHubBeforeItHasRules(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.setAway(true)
	h, err := feed.NewHub(feed.HubConfig{Reader: d, Waiter: d, Resync: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h.Start()
	defer h.Close()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/v1/changes", nil))
	if recorder.Code != http.StatusServiceUnavailable || recorder.Header().Get("Retry-After") == "" || h.Ready() {
		t.Errorf("ready %v, answer %d %s", h.Ready(), recorder.Code, recorder.Body)
	}
	d.put("a", 1)
	d.setAway(false)
	await.That(t, "the hub is ready", h.Ready)
}

func TestHubServesWhatItHasWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	log := new(lockedBuffer)
	h := startHub(t, d, func(c *feed.HubConfig) {
		c.Resync, c.Log = 20*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
	})
	server := serve(t, h)
	d.setAway(true)
	d.put("a", 2)
	before := d.asked()
	await.That(t, "some tries", func() bool { return d.asked() > before+3 })
	if a := get(t, server, ""); a.Revision != 1 || len(a.Rules) != 1 {
		t.Errorf("answer at %d with %d rules", a.Revision, len(a.Rules))
	}
	d.setAway(false)
	await.That(t, "the change", func() bool { return h.Revision() == 2 })
	await.That(t, "the log", func() bool { return strings.Contains(log.String(), "answers again") })
	if n := strings.Count(log.String(), "does not answer"); n != 1 {
		t.Errorf("%d lines about one outage:\n%s", n, log)
	}
}

func TestHubFindsWhatHasNoRevision(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	first := d.current()
	d.put("b", 1)
	log := new(lockedBuffer)
	h := startHub(t, d, func(c *feed.HubConfig) {
		c.Resync, c.WholeEvery, c.Log = 5*time.Millisecond, time.Nanosecond, slog.New(slog.NewTextHandler(log, nil))
	})
	d.byHand("a", 9)
	await.That(t, "a change by hand", func() bool { return h.Set().Rules[0].Version == 9 })
	if h.Revision() != 2 || !strings.Contains(log.String(), "without a new revision") {
		t.Errorf("revision %d, log:\n%s", h.Revision(), log)
	}
	d.older(first)
	await.That(t, "an older database", func() bool { return h.Revision() == 1 })
	if !strings.Contains(log.String(), "older") || len(h.Set().Rules) != 1 {
		t.Errorf("%d rules, log:\n%s", len(h.Set().Rules), log)
	}
}

// A row whose name JSON cannot carry is left out, and the rest has a digest that
// pods can check.
func TestHubLeavesOutWhatHasNoName(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	d.put("b\xff", 1)
	h := startHub(t, d, nil)
	server := serve(t, h)
	d.put("c\xff", 1)
	d.put("d", 1)
	await.That(t, "all", func() bool { return h.Revision() == 4 })
	c := client(t, server.URL, nil)
	set, err := c.Whole(t.Context())
	if err != nil || len(set.Rules) != 2 || set.Rules[1].ID != "d" {
		t.Errorf("%v, %v", set.Rules, err)
	}
}

func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	h := startHub(t, d, func(c *feed.HubConfig) { c.MaxWatchers = 3 })
	server := serve(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil { // it may be refused while the question below has a place
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"?since=1&wait=60s", nil)
				if resp, err := server.Client().Do(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	await.That(t, "503", func() bool {
		resp, err := server.Client().Get(server.URL + "?since=0")
		if err != nil {
			t.Error(err)
			return true
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	cancel()
	wg.Wait()
	await.That(t, "places again", func() bool {
		resp, err := server.Client().Get(server.URL + "?since=0")
		if err != nil {
			t.Error(err)
			return true
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// With every hint lost, at the true settings and on virtual time.
func TestResyncAloneReachesWatchersInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.deaf = true
		d.put("a", 1)
		h, err := feed.NewHub(feed.HubConfig{Reader: d, Waiter: d})
		if err != nil {
			t.Fatal(err)
		}
		h.Start()
		defer h.Close()
		synctest.Wait()
		worst := time.Duration(0)
		for i := int64(2); i < 50; i++ {
			time.Sleep(time.Duration(i) * 379 * time.Millisecond)
			began := time.Now()
			d.put("a", i)
			for h.Revision() != i {
				recorder := httptest.NewRecorder()
				h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/v1/changes?since=%d&wait=60s", i-1), nil))
			}
			worst = max(worst, time.Since(began))
		}
		t.Logf("the longest without hints: %v", worst)
		if worst > 7*time.Second {
			t.Errorf("a change took %v to be served, want at most 5 s and a fifth", worst)
		}
	})
}

// 150 pods over the loopback.
func TestAChangeReachesAllWatchersSoon(t *testing.T) {
	for _, tt := range []struct {
		name    string
		deaf    bool
		changes int64
		limit   time.Duration
	}{
		{"with hints", false, 40, time.Second},
		{"every hint lost, a resync each 200 ms", true, 5, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDatabase()
			d.deaf = tt.deaf
			for i := range 100 {
				d.put(fmt.Sprintf("rule-%d", i), 1)
			}
			h := startHub(t, d, func(c *feed.HubConfig) {
				if tt.deaf {
					c.Resync = 200 * time.Millisecond
				}
			})
			server := serve(t, h)
			const pods = 150
			first := d.current().Revision
			last := first + tt.changes
			came := make(chan int64, pods)
			if raced {
				tt.limit *= 10 // what is timed is then the detector
			}
			ctx, cancel := context.WithTimeout(t.Context(), max(time.Minute, time.Duration(tt.changes)*tt.limit))
			defer cancel()
			var wg sync.WaitGroup
			for range pods {
				c := client(t, server.URL, nil)
				wg.Go(func() {
					for at := first; at < last; {
						if err := c.Wait(ctx, at); err != nil {
							t.Error(err)
							return
						}
						changes, err := c.Since(ctx, at)
						if err != nil {
							t.Error(err)
							return
						}
						at = changes.Revision
						came <- at
					}
				})
			}
			start, before := time.Now(), d.asked()
			var took []time.Duration
			for i := range tt.changes {
				began := time.Now()
				want := d.put("rule-0", 2+i)
				for n := range pods {
					select {
					case got := <-came:
						if got != want {
							t.Fatalf("a pod has revision %d, want %d", got, want)
						}
					case <-ctx.Done():
						t.Fatalf("%d of %d pods have revision %d", n, pods, want)
					}
				}
				took = append(took, time.Since(began))
			}
			wg.Wait()
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			t.Logf("the last of %d pods had a change after %v (median), %v (p99); the database was asked %d times for %d changes",
				pods, took[len(took)/2], p99, d.asked()-before, tt.changes)
			if p99 > tt.limit {
				t.Errorf("p99 is %v, want at most %v", p99, tt.limit)
			}
			resyncs := int64(time.Since(start) / (feed.DefaultResync * 4 / 5))
			if asked := int64(d.asked() - before); !tt.deaf && asked > 4*tt.changes+40+resyncs {
				t.Errorf("the database was asked %d times for %d changes and %d pods", asked, tt.changes, pods)
			}
		})
	}
}

// CFG-01: each configuration change left a goroutine behind.
func TestAThousandChangesLeaveNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	d := newDatabase()
	d.put("a", 1)
	h, err := feed.NewHub(feed.HubConfig{Reader: d, Waiter: d})
	if err != nil {
		t.Fatal(err)
	}
	h.Start()
	await.That(t, "the hub is ready", h.Ready)
	server := httptest.NewServer(h)
	c := client(t, server.URL, nil)
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: c})
	if _, _, _, err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rulestore.Follow(ctx, c, source, func(ctx context.Context) error {
			_, _, _, err := source.Load(ctx)
			return err
		})
	}()
	for i := int64(2); i <= 1000; i++ {
		want := d.put("a", i)
		if i%10 == 0 {
			await.That(t, "the change on the pod", func() bool { return source.Revision() == want })
		}
	}
	cancel()
	<-done
	_ = h.Close()
	_ = c.Close()
	server.Close()
	await.That(t, "no goroutine is left", func() bool { return goleak.Find(before) == nil })
}

func TestStream(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	h := startHub(t, d, func(c *feed.HubConfig) { c.Heartbeat = 20 * time.Millisecond })
	server := serve(t, h)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", "1")
	resp, err := server.Client().Do(req) //nolint:bodyclose // the reader below does
	if err != nil {
		t.Fatal(err)
	}
	text := new(lockedBuffer)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		_, _ = io.Copy(text, resp.Body)
	}()
	d.put("a", 2)
	await.That(t, "the first event", func() bool { return strings.Contains(text.String(), "id: 2\n") })
	d.put("a", 3)
	await.That(t, "the second event", func() bool { return strings.Contains(text.String(), "id: 3\n") })
	await.That(t, "a comment", func() bool { return strings.Contains(text.String(), "\n\n:\n\n") })
	var events []wire.Answer
	for event := range strings.SplitSeq(text.String(), "\n\n") {
		if _, data, ok := strings.Cut(event, "\ndata: "); ok {
			var a wire.Answer
			if err := a.Decode(json.NewDecoder(strings.NewReader(data))); err != nil {
				t.Errorf("%s: %v", event, err)
			}
			events = append(events, a)
		}
	}
	if len(events) != 2 || events[0].Whole || events[0].Revision != 2 || events[1].Revision != 3 || len(events[1].Rules) != 1 {
		t.Errorf("events %+v", events)
	}
	_ = h.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream did not end with the hub")
	}
}

// A client that takes nothing must not hold a goroutine and a place for ever.
func TestAStuckClientIsLetGo(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.edit(func(revision int64) rulestore.Changes {
		var c rulestore.Changes
		for i := range 20_000 { // some MB: more than sockets hold
			c.Rules = append(c.Rules, ruleRow(fmt.Sprintf("rule-%05d", i), 1, revision))
			c.Rules[i].Live = json.RawMessage(`{"description":"` + strings.Repeat("x", 1000) + `"}`)
		}
		return c
	})
	h := startHub(t, d, func(c *feed.HubConfig) { c.WriteTimeout, c.MaxWatchers = 100*time.Millisecond, 1 })
	server := serve(t, h)
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	await.That(t, "the place is free", func() bool {
		again, err := server.Client().Get(server.URL + "?since=1")
		if err != nil { // a busy machine may need longer than that for this answer, too
			t.Log(err)
			return false
		}
		again.Body.Close()
		return again.StatusCode == http.StatusOK
	})
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stuck client got everything; the test proves nothing")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// listen serves a hub where another was served before.
func listen(t testing.TB, url string, h *feed.Hub) {
	t.Helper()
	listener, err := net.Listen("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(func() {
		_ = h.Close()
		server.Close()
	})
}
