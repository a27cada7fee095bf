package feed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/internal/uplink"
	"github.com/tallygate/tallygate/rules"
)

func client(t testing.TB, url string, change func(*feed.ClientConfig)) *feed.Client {
	t.Helper()
	cfg := feed.ClientConfig{URL: url}
	if change != nil {
		change(&cfg)
	}
	c, err := feed.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// counted counts requests and those for everything.
type counted struct {
	http.Handler
	requests, whole atomic.Int64
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.requests.Add(1)
	if r.URL.Query().Get("since") == "0" {
		c.whole.Add(1)
	}
	c.Handler.ServeHTTP(w, r)
}

// A pod by way of the feed has what the database has, whatever happens to the latter.
func TestClientFollows(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	first := d.current()
	h := startHub(t, d, func(c *feed.HubConfig) { c.Keep, c.Resync, c.WholeEvery = 3, 10*time.Millisecond, 10*time.Millisecond })
	count := &counted{Handler: h}
	server := httptest.NewServer(count)
	defer server.Close()
	c := client(t, server.URL, nil)
	log := new(bytes.Buffer)
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: c, WholeEvery: time.Nanosecond, Log: slog.New(slog.NewTextHandler(log, nil))})
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: source, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	load := func(what string, transfers int64, want ...string) {
		t.Helper()
		await.That(t, "the hub has it", func() bool { return h.Set().Hash == d.current().Hash && h.Revision() == d.current().Revision })
		before := count.whole.Load()
		if err := w.Reload(t.Context()); err != nil || source.Revision() != d.current().Revision {
			t.Fatalf("%s: revision %d, %v; want %d", what, source.Revision(), err, d.current().Revision)
		}
		var got []string
		for _, r := range w.Snapshot().Rules() {
			got = append(got, r.ID())
		}
		if !slices.Equal(got, want) || count.whole.Load()-before != transfers {
			t.Errorf("%s: rules %v after %d questions for everything; want %v after %d", what, got, count.whole.Load()-before, want, transfers)
		}
	}
	load("the first load", 1, "a")
	d.put("b", 1)
	d.remove("a", 2)
	load("changes", 0, "b")
	load("no change", 0, "b")
	var many []string
	for i := range 10 {
		many = append(many, fmt.Sprint("c", i))
		d.put(many[i], 1)
	}
	d.remove("b", 2)
	load("more changes than the hub remembers, and a row gone", 0, many...) // the answer is everything
	if strings.Contains(log.String(), "older") {
		t.Errorf("log:\n%s", log)
	}
	d.older(first)
	load("an older database", 0, "a")
	d.byHand("a", 7)
	load("a change by hand", 1, "a")
	if lim, _ := w.Snapshot().Rule("a").Effective("x", time.Now()); lim.Burst != 7 {
		t.Errorf("burst %d after a change by hand, want 7", lim.Burst)
	}
	for _, word := range []string{"older", "without a new revision"} {
		if strings.Count(log.String(), word) != 1 {
			t.Errorf("%q is not there once in the log:\n%s", word, log)
		}
	}
}

func TestAChangeCostsOneRequest(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	h := startHub(t, d, nil)
	count := &counted{Handler: h}
	server := httptest.NewServer(count)
	defer server.Close()
	c := client(t, server.URL, nil)
	if _, err := c.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := count.requests.Load()
	for i := int64(2); i < 12; i++ {
		d.put("a", i)
		if err := c.Wait(t.Context(), i-1); err != nil {
			t.Fatal(err)
		}
		changes, err := c.Since(t.Context(), i-1)
		if err != nil || changes.Revision != i || len(changes.Rules) != 1 {
			t.Fatalf("%+v, %v", changes, err)
		}
	}
	if got := count.requests.Load() - before; got != 10 {
		t.Errorf("%d requests for 10 changes", got)
	}
}

// What Since cannot tell as changes, it leaves to Whole, by the contract of
// rulestore.Changes, without one more request.
func TestClientThatKnowsNothingYet(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	for i := int64(1); i < 9; i++ {
		d.put("a", i)
	}
	h := startHub(t, d, nil) // it remembers no change
	count := &counted{Handler: h}
	server := httptest.NewServer(count)
	defer server.Close()
	c := client(t, server.URL, nil)
	changes, err := c.Since(t.Context(), 4)
	if err != nil || !changes.Forgotten || changes.Revision != 8 || len(changes.Rules) > 0 {
		t.Fatalf("%+v, %v", changes, err)
	}
	set, err := c.Whole(t.Context())
	if err != nil || set.Revision != 8 || count.requests.Load() != 1 {
		t.Errorf("revision %d, %v, %d requests", set.Revision, err, count.requests.Load())
	}
	all, err := c.Since(t.Context(), 0)
	if err != nil || all.Revision != 8 || len(all.Rules) != 1 {
		t.Errorf("since 0: %+v, %v", all, err)
	}
}

func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	const token = "tg_verysecret"
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed to another server")
	}))
	defer elsewhere.Close()
	for _, tt := range []struct {
		name, body, kind string
		status           int
		says             string
	}{
		{"a page", "<html>", "text/html", 200, "not JSON"},
		{"half an answer", `{"revision":5,"hash":"x"`, "application/json", 200, "cannot be read"},
		{"two answers", `{"revision":5,"hash":"x"}{}`, "application/json", 200, "more after it"},
		{"another hash", `{"revision":5,"hash":"abc","whole":true,"rules":[{"id":"a","version":1}]}`, "application/json", 200, "have hash"},
		{"no hash", `{"revision":5,"whole":true}`, "application/json", 200, "makes no sense"},
		{"a revision below 0", `{"revision":-5,"hash":"x"}`, "application/json", 200, "makes no sense"},
		{"changes where all was asked", `{"revision":5,"hash":"x"}`, "application/json", 200, "tells changes"},
		{"a refusal that shows the token", `{"detail":"no ` + token + `\u0007 here"}`, "application/problem+json", 401, "401 Unauthorized: no …  here"},
		{"a redirect to another server", elsewhere.URL, "", 302, "another server"},
		{"an error without words", "", "", 500, "500 Internal Server Error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+token {
					t.Error("no token came")
				}
				if tt.status == http.StatusFound {
					w.Header().Set("Location", tt.body)
				}
				w.Header().Set("Content-Type", tt.kind)
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer server.Close()
			c := client(t, server.URL, func(cfg *feed.ClientConfig) { cfg.Token = token })
			_, err := c.Whole(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), token) {
				t.Errorf("got error %v, want one that says %q and no token", err, tt.says)
			}
			if status, ok := errors.AsType[*uplink.StatusError](err); ok != (tt.status >= 400) || ok && status.Status != tt.status {
				t.Errorf("status %+v", status)
			}
		})
	}
}

// While the control plane is away Wait goes on trying, and does not storm.
func TestWaitOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"revision": 7, "hash": "x"})
	}))
	defer server.Close()
	c := client(t, server.URL, nil)
	began := time.Now()
	if err := c.Wait(t.Context(), 6); err != nil || tries.Load() != 3 || time.Since(began) < time.Second {
		t.Errorf("%v after %d tries in %s", err, tries.Load(), time.Since(began))
	}
	// The same revision at once, again and again: a server that does not wait.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	before := tries.Load()
	began = time.Now()
	go func() { ended <- c.Wait(ctx, 7) }()
	await.That(t, "two tries", func() bool { return tries.Load() >= before+2 })
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("two tries in %s", took)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestClientConfig(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  feed.ClientConfig
		says string
	}{
		{"no URL", feed.ClientConfig{}, "https://host:port"},
		{"another scheme", feed.ClientConfig{URL: "postgres://kim:hidden@x/y"}, "https://host:port"},
		{"a password in the URL", feed.ClientConfig{URL: "https://kim:hidden@x"}, "token instead"},
		{"a query in the URL", feed.ClientConfig{URL: "https://x?token=hidden"}, "leave it out"},
		{"a URL that is none", feed.ClientConfig{URL: "https://hidden\x7f"}, "https://host:port"},
		{"a token of two lines", feed.ClientConfig{URL: "https://x", Token: "hidden\nhidden"}, "one line"},
		{"a long wait", feed.ClientConfig{URL: "https://x", LongPoll: time.Hour}, "1m0s"},
	} {
		_, err := feed.NewClient(tt.cfg)
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
