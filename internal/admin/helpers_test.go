package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/pgtest"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// rig is an API on a database of its own, behind a real server.
type rig struct {
	store   *sqldb.DB
	url     string
	handler http.Handler
	doc     *document
	limiter *limiter
	fleet   *pods
}

// openSQLite opens a database that ends with the test.
func openSQLite(t testing.TB) *sqldb.DB {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "rules.db"))
}

func openPath(t testing.TB, path string) *sqldb.DB {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.DB
}

// start starts an API on SQLite; change changes what it serves, nil for nothing.
func start(t testing.TB, change func(*admin.Config)) *rig {
	t.Helper()
	return startOn(t, openSQLite(t), change)
}

func startOn(t testing.TB, db *sqldb.DB, change func(*admin.Config)) *rig {
	t.Helper()
	r := &rig{store: db, limiter: &limiter{}, fleet: &pods{}}
	cfg := admin.Config{
		Reader: db, Writer: db, Records: db, Historian: db, Auditor: db,
		Looker: r.limiter, Resetter: r.limiter, Fleet: r.fleet,
		Changes: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}\n") }),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "# none\n") }),
		Rate:    1_000_000, Burst: 1_000_000, Version: "test",
	}
	if change != nil {
		change(&cfg)
	}
	a, err := admin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.handler = a.Handler()
	server := httptest.NewServer(r.handler)
	t.Cleanup(server.Close)
	r.url = server.URL
	r.doc = served(t, r.handler, cfg.Tokens)
	return r
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r *reply) problem(t testing.TB) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(r.body, &p); err != nil {
		t.Fatalf("%s is no problem: %v", r.body, err)
	}
	return p
}

// read reads an answer that must be a good one.
func read[T any](t testing.TB, r reply) T {
	t.Helper()
	var out T
	if r.status >= 300 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	if err := json.Unmarshal(r.body, &out); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return out
}

// ask asks over HTTP. headers are "Name: value". Each answer must be what the
// OpenAPI document says.
func (r *rig) ask(t testing.TB, method, path, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{status: got.StatusCode, header: got.Header, body: text}
	if err := r.doc.validate(method, path, out); err != nil {
		t.Errorf("%s %s: the answer is not as the document says: %v\n%s", method, path, err, text)
	}
	return out
}

// must asks for what must be granted.
func (r *rig) must(t testing.TB, method, path, body string, headers ...string) reply {
	t.Helper()
	got := r.ask(t, method, path, body, headers...)
	if got.status >= 300 {
		t.Fatalf("%s %s: status %d: %s", method, path, got.status, got.body)
	}
	return got
}

// bucket is the body of a rule.
func bucket(id string, burst int, more ...string) string {
	extra := ""
	for _, m := range more {
		extra += "," + m
	}
	return fmt.Sprintf(`{"id":%q,"match":{"plan":"free"},"identity":["api_key"],"algorithm":"token_bucket","rate":10,"burst":%d%s}`, id, burst, extra)
}

const create = "If-None-Match: *"

func ifMatch(version int64) string { return fmt.Sprintf(`If-Match: "%d"`, version) }

// tokens makes a file of tokens, by name, with role and domain, and returns them.
func tokens(t testing.TB, lines ...string) (*token.File, map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	shown := writeTokens(t, path, lines...)
	file, err := token.Open(token.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return file, shown
}

// writeTokens writes lines of "name role domain".
func writeTokens(t testing.TB, path string, lines ...string) map[string]string {
	t.Helper()
	var text bytes.Buffer
	text.WriteString("tokens:\n")
	shown := map[string]string{}
	for _, line := range lines {
		f := append(strings.Fields(line), "")
		plain, hash := token.New()
		shown[f[0]] = plain
		fmt.Fprintf(&text, "  - {name: %s, role: %s, domain: %q, sha256: %s}\n", f[0], f[1], f[2], hash)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return shown
}

func bearer(text string) string { return "Authorization: Bearer " + text }

// limiter answers for buckets as a test tells it, and remembers what it was asked.
type limiter struct {
	mu    sync.Mutex
	left  int64
	err   error
	asked []string
	check tallygate.Check
}

func (l *limiter) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, what)
}

func (l *limiter) Usage(_ context.Context, domain string, key []string) (tallygate.Usage, error) {
	l.note(fmt.Sprintf("usage %s %q", domain, key))
	if l.err != nil {
		return tallygate.Usage{}, l.err
	}
	return tallygate.Usage{Domain: domain, Key: key, Rules: []tallygate.RuleUsage{
		{Rule: "free", Limit: 10, Remaining: l.left, ResetMS: 100},
		{Rule: "away", Err: &tallygate.Error{Code: tallygate.CodeStoreTimeout, Message: "late"}},
	}}, nil
}

func (l *limiter) Explain(_ context.Context, check tallygate.Check) (tallygate.Explanation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check = check
	if l.err != nil {
		return tallygate.Explanation{}, l.err
	}
	return tallygate.Explanation{Revision: 7, Domain: check.Domain, Allow: false, DeniedBy: "free", Unmatched: 2, Rules: []tallygate.RuleExplanation{
		{RuleUsage: tallygate.RuleUsage{Rule: "free", Limit: 10}, Action: "limit", Key: []string{"k"}, Reason: tallygate.ReasonOverLimit},
	}}, nil
}

func (l *limiter) Reset(_ context.Context, domain, rule string, key []string) (int, error) {
	l.note(fmt.Sprintf("reset %s %s %q", domain, rule, key))
	return 2, l.err
}

// pods is a fleet that keeps the last reports.
type pods struct {
	mu   sync.Mutex
	list []fleet.Pod
}

func (p *pods) Report(_ context.Context, r fleet.Report) (fleet.Receipt, error) {
	if err := r.Validate(); err != nil {
		return fleet.Receipt{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, fleet.Pod{Report: r, SeenAt: time.Unix(1_800_000_000, 0).UTC(), Live: true})
	return fleet.Receipt{Known: true}, nil
}

func (p *pods) Pods() []fleet.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]fleet.Pod(nil), p.list...)
}
