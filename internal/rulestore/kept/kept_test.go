package kept_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/kept"
	"github.com/tallygate/tallygate/rules"
)

// childEnv names the file that a child process keeps writing until it is killed.
const childEnv = "TALLYGATE_TEST_KEPT"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		writeForEver(path)
	}
	os.Exit(m.Run())
}

const source = "postgres://db.example/tallygate"

var errAway = errors.New("connection refused")

// reader is a store in memory that may be away.
type reader struct {
	mu   sync.Mutex // guards what follows
	set  rulestore.Set
	away bool
}

func (r *reader) Whole(context.Context) (rulestore.Set, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return rulestore.Set{}, errAway
	}
	return r.set, nil
}

func (r *reader) Since(_ context.Context, revision int64) (rulestore.Changes, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return rulestore.Changes{}, errAway
	}
	c := rulestore.Changes{Revision: r.set.Revision}
	for _, rule := range r.set.Rules {
		if rule.Revision > revision {
			c.Rules = append(c.Rules, rule)
		}
	}
	return c, nil
}

func (r *reader) setAway(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

// put makes a set of n rules at a revision.
func (r *reader) put(revision int64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = set(revision, n)
}

func set(revision int64, n int) rulestore.Set {
	s := rulestore.Set{Revision: revision}
	for i := range n {
		s.Rules = append(s.Rules, rulestore.Rule{
			ID: fmt.Sprintf("rule-%03d", i), Version: revision, Revision: revision, LiveVersion: revision, ChangedAt: time.UnixMilli(7).UTC(),
			Live: json.RawMessage(fmt.Sprintf(`{"id":"rule-%03d","match":{"plan":"free"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":%d}`, i, revision)),
		})
	}
	s.Overrides = []rulestore.Override{{Rule: "rule-000", Key: []string{"k"}, ID: `["k"]`, Body: json.RawMessage("junk\xff"), Version: 1, Revision: 1}}
	s.Hash = rulestore.Digest(s.Rules, s.Overrides)
	return s
}

// keep returns a store that is started unless the test does that.
func keep(t testing.TB, r rulestore.Reader, path string, change func(*kept.Config)) *kept.Store {
	t.Helper()
	cfg := kept.Config{Reader: r, Path: path, Source: source, Every: time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	s, err := kept.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func closed(t testing.TB, s *kept.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRestartWhileTheSourceIsAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.snapshot")
	r := &reader{set: set(5, 3)}
	first := keep(t, r, path, nil)
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: first})
	if _, _, _, err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.put(6, 4)
	if _, _, _, err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed(t, first)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	r.setAway(true)
	log := new(bytes.Buffer)
	again := keep(t, r, path, func(c *kept.Config) {
		c.Log = slog.New(slog.NewTextHandler(log, nil))
		c.Now = func() time.Time { return time.Now().Add(90 * time.Minute) }
	})
	source = rulestore.NewSource(rulestore.SourceConfig{Reader: again})
	live, problems, version, err := source.Load(t.Context())
	if err != nil || len(live.Rules) != 4 || live.Rules[0].Burst != 6 || len(problems) != 1 || version.Revision != 6 || version.Content != set(6, 4).Hash {
		t.Fatalf("%d rules, %v, %+v, %v", len(live.Rules), problems, version, err)
	}
	if _, fromFile := again.Serving(); !fromFile || !strings.Contains(log.String(), "age=1h30m0s") {
		t.Errorf("serving from the file %v, log:\n%s", fromFile, log)
	}
	if _, err := again.Since(t.Context(), 6); !errors.Is(err, errAway) {
		t.Errorf("what is new is not known: %v", err)
	}
	// The source answers: changes since the snapshot, which are kept as well.
	r.put(7, 5)
	r.setAway(false)
	if live, _, _, err = source.Load(t.Context()); err != nil || len(live.Rules) != 5 {
		t.Fatalf("%d rules, %v", len(live.Rules), err)
	}
	// From now on its failures are its own.
	r.setAway(true)
	if _, err := again.Whole(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("after it answered: %v", err)
	}
	if _, fromFile := again.Serving(); fromFile {
		t.Error("still said to be from the file")
	}
	closed(t, again)
	if got, err := keep(t, r, path, nil).Whole(t.Context()); err != nil || got.Revision != 7 || got.Hash != set(7, 5).Hash {
		t.Errorf("kept revision %d, %v", got.Revision, err)
	}
}

func TestFilesThatAreNotUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "good")
	r := &reader{set: set(5, 3)}
	s := keep(t, r, path, nil)
	if _, err := s.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.setAway(true)
	for _, tt := range []struct {
		name string
		file []byte
		says string
	}{
		{"empty", nil, "cut off"},
		{"of something else", []byte("rules:\n- id: a\n"), "no snapshot"},
		{"cut off in the head", good[:20], "cut off"},
		{"cut off in the rows", good[:len(good)-1], "damaged"},
		{"longer", append(slices.Clone(good), '}'), "damaged"},
		{"one byte changed", bytes.Replace(good, []byte(`"rate":1`), []byte(`"rate":2`), 1), "damaged"},
		{"of another database", bytes.Replace(good, []byte("db.example"), []byte("dc.example"), 1), `it is of "postgres://dc.example`},
		{"of a version to come", bytes.Replace(good, []byte(`snapshot":1`), []byte(`snapshot":2`), 1), "format 2"},
		{"with another hash", bytes.Replace(good, []byte(`"hash":"`), []byte(`"hash":"0`), 1), "hash"},
		{"of zeros", make([]byte, 4096), "no snapshot"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(tt.name, " ", "-"))
		if err := os.WriteFile(path, tt.file, 0o600); err != nil {
			t.Fatal(err)
		}
		log := new(bytes.Buffer)
		s := keep(t, r, path, func(c *kept.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
		for range 2 {
			if got, err := s.Whole(t.Context()); !errors.Is(err, errAway) || !strings.Contains(fmt.Sprint(err), tt.says) || got.Rules != nil {
				t.Errorf("%s: %+v, %v", tt.name, got, err)
			}
		}
		if n := strings.Count(log.String(), "is not used"); n != 1 {
			t.Errorf("%s: %d lines:\n%s", tt.name, n, log)
		}
		// It heals by itself.
		r.setAway(false)
		if _, err := s.Whole(t.Context()); err != nil {
			t.Error(err)
		}
		closed(t, s)
		if healed, err := os.ReadFile(path); err != nil || !bytes.Contains(healed, []byte(`"revision":5`)) {
			t.Errorf("%s: not written again: %v", tt.name, err)
		}
		r.setAway(true)
	}
	log := new(bytes.Buffer)
	s = keep(t, r, filepath.Join(dir, "none"), func(c *kept.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	if _, err := s.Whole(t.Context()); !errors.Is(err, errAway) || !errors.Is(err, fs.ErrNotExist) || log.Len() > 0 {
		t.Errorf("no file: %v, log:\n%s", err, log)
	}
}

// A file that is read holds what its head says, whatever the bytes are.
func FuzzDecode(f *testing.F) {
	path := filepath.Join(f.TempDir(), "file")
	s := keep(f, &reader{set: set(5, 2)}, path, nil)
	if _, err := s.Whole(f.Context()); err != nil {
		f.Fatal(err)
	}
	closed(f, s)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("{}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, _, err := kept.Decode(source, file)
		if err == nil && got.Hash != rulestore.Digest(got.Rules, got.Overrides) {
			t.Errorf("got %+v", got)
		}
		if err != nil && (got.Rules != nil || len(err.Error()) > 2000) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// writeForEver is the child: it writes sets of other sizes without a pause, and tells
// when the file was replaced a few times.
func writeForEver(path string) {
	for revision := int64(1); ; revision++ {
		r := &reader{set: set(revision, int(revision*37%200))}
		s, err := kept.New(kept.Config{Reader: r, Path: path, Source: source})
		if err != nil {
			panic(err)
		}
		s.Start()
		if _, err := s.Whole(context.Background()); err != nil {
			panic(err)
		}
		if err := s.Close(); err != nil { // writes
			panic(err)
		}
		if revision == 3 {
			_, _ = os.Stdout.WriteString("begun\n")
		}
	}
}

// However it is killed, the file is a whole one.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.snapshot")
	last := int64(0)
	for range 15 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), childEnv+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		limit := time.NewTimer(time.Duration(20+rand.IntN(60)) * time.Millisecond)
		<-limit.C
		_ = child.Process.Kill()
		_ = child.Wait()
		file := read(t, path)
		got, _, err := kept.Decode(source, file)
		if err != nil || got.Hash != set(got.Revision, int(got.Revision*37%200)).Hash {
			t.Fatalf("after %d bytes: revision %d, %v", len(file), got.Revision, err)
		}
		last = max(last, got.Revision)
	}
	if last < 3 {
		t.Error("no child wrote more than twice; the test proves nothing")
	}
	// What they left is tidied once it is old.
	left := func() int {
		names, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		return len(names)
	}
	t.Logf("the most writes of a child: %d; %d unfinished files were left", last, left())
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), ".rules.snapshot.1.tmp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left()
	s := keep(t, &reader{set: set(1, 1)}, path, nil)
	closed(t, s)
	if n := left(); n != 0 {
		t.Errorf("%d unfinished files are still there", n)
	}
}

// At most once a second, however often the rules change; the last change is written.
func TestWritesAreFew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "rules.snapshot")
		r := &reader{set: set(1, 1)}
		s := keep(t, r, path, func(c *kept.Config) { c.Every = 0 })
		defer s.Close()
		written := map[string]bool{}
		for revision := int64(1); revision <= 500; revision++ {
			r.put(revision, 1)
			if _, err := s.Whole(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			written[string(file)] = true
			time.Sleep(10 * time.Millisecond)
		}
		if len(written) < 5 || len(written) > 6 {
			t.Errorf("in 5 s there were %d files", len(written))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := kept.Decode(source, read(t, path)); err != nil || got.Revision != 500 {
			t.Errorf("the last file has revision %d, %v", got.Revision, err)
		}
		for range 3 { // nothing new: nothing is written
			if _, err := s.Whole(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("written again without a change: %v", err)
		}
	})
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A disk that takes nothing is said once, and tried again.
func TestADiskThatTakesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	log := new(bytes.Buffer)
	synctest.Test(t, func(t *testing.T) {
		s := keep(t, &reader{set: set(1, 1)}, filepath.Join(dir, "file"), func(c *kept.Config) {
			c.Every, c.Log = time.Second, slog.New(slog.NewTextHandler(log, nil))
		})
		defer s.Close()
		if _, err := s.Whole(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		read(t, filepath.Join(dir, "file"))
	})
	if strings.Count(log.String(), "cannot be kept") != 1 || strings.Count(log.String(), "kept on disk again") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ source, want string }{
		{"postgres://kim:hidden@db:5432/rules?sslmode=require&password=hidden", "postgres://db:5432/rules"},
		{"https://control.example:8090/base#hidden", "https://control.example:8090/base"},
		{"sqlite:tallygate.db", "sqlite:tallygate.db"},
	} {
		if got := kept.Identity(tt.source); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.source, got, tt.want)
		}
	}
	if a, b := kept.Identity("host=a password=hidden"), kept.Identity("host=b password=hidden"); a == b || strings.Contains(a+b, "hidden") {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []kept.Config{{}, {Reader: &reader{}, Path: "x"}, {Reader: &reader{}, Path: "x", Source: "y", Every: -1}} {
		if _, err := kept.New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// A watcher starts from the file, and nothing is left when all is closed.
func TestAWatcherStartsFromTheFile(t *testing.T) {
	before := goleak.IgnoreCurrent()
	path := filepath.Join(t.TempDir(), "file")
	r := &reader{set: set(5, 3)}
	s := keep(t, r, path, nil)
	if _, err := s.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	r.setAway(true)
	s = keep(t, r, path, nil)
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: rulestore.NewSource(rulestore.SourceConfig{Reader: s})})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Snapshot().Rule("rule-002") == nil || w.Snapshot().Revision() != 5 {
		t.Errorf("revision %d", w.Snapshot().Revision())
	}
	_ = w.Close()
	closed(t, s)
	goleak.VerifyNone(t, before)
}
