package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tallygate "github.com/tallygate/tallygate/cmd/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
)

// plane is a running control plane.
type plane struct {
	url            string
	clock          *clock
	stdout, stderr *buffer
	stop           func()
}

// control starts tallygate control on an address; ":0" picks one.
func control(t *testing.T, address string, args ...string) *plane {
	t.Helper()
	p := &plane{clock: newClock(), stdout: new(buffer), stderr: new(buffer)}
	listening, exited := make(chan string, 1), make(chan int, 1)
	m := &tallygate.Main{Now: p.clock.now, AdminListening: func(address string) { listening <- address }}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		exited <- m.Run(ctx, append([]string{"control", "--admin", address}, args...), strings.NewReader(""), p.stdout, p.stderr, nil)
	}()
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case <-exited:
			case <-time.After(hangs):
				t.Errorf("control did not end: %s", p.stderr)
			}
		})
	}
	t.Cleanup(p.stop)
	select {
	case address := <-listening:
		p.url = "http://" + address
	case code := <-exited:
		t.Fatalf("control ended with %d: %s", code, p.stderr)
	case <-time.After(hangs):
		t.Fatalf("control did not listen: %s", p.stderr)
	}
	return p
}

// follower starts a pod that follows a control plane.
func follower(t *testing.T, p *plane, name string, args ...string) *service {
	t.Helper()
	return serveAt(t, append([]string{"--rules", p.url, "--pod-id", name, "--snapshot-file", filepath.Join(t.TempDir(), "snapshot.json")}, args...)...)
}

// tg runs a command that must succeed.
func tg(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(t, nil, args...)
	if code != 0 {
		t.Fatalf("%v: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout + stderr
}

// newRules makes a database with one rule.
func newRules(t *testing.T) (file, database string) {
	t.Helper()
	dir := t.TempDir()
	file, database = filepath.Join(dir, "r.yaml"), "sqlite:"+filepath.Join(dir, "t.db")
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 5)))
	tg(t, "rules", "apply", file, "--yes", "--rules", database)
	return file, database
}

// pods returns the revision of the rules, and that of each pod.
func (p *plane) pods(t *testing.T) (revision int64, pods map[string]int64) {
	t.Helper()
	var list struct {
		Revision int64
		Pods     []struct {
			Pod      string
			Revision int64
			Live     bool
		}
	}
	if err := json.Unmarshal([]byte(tg(t, "pods", "--control", p.url, "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	pods = map[string]int64{}
	for _, pod := range list.Pods {
		if !pod.Live {
			t.Errorf("%s is not live", pod.Pod)
		}
		pods[pod.Pod] = pod.Revision
	}
	return list.Revision, pods
}

func (p *plane) allAt(t *testing.T, revision int64, n int) bool {
	t.Helper()
	_, pods := p.pods(t)
	for _, at := range pods {
		if at != revision {
			return false
		}
	}
	return len(pods) == n
}

// Three pods follow a control plane, and pods proves what they run.
func TestFleet_pods(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	p := control(t, "127.0.0.1:0", "--rules", database)
	var pods []*service
	for i := range 3 {
		pods = append(pods, follower(t, p, fmt.Sprint("pod-", i)))
	}
	before, _ := p.pods(t)
	await.That(t, "all pods at the first revision", func() bool { return p.allAt(t, before, 3) })
	t.Log(tg(t, "pods", "--control", p.url))

	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	tg(t, "rules", "apply", file, "--yes", "--rules", p.url, "--why", "more")
	start := time.Now()
	for _, pod := range pods {
		await.That(t, "the change on all pods", func() bool { return pod.ask(t, "a", 0).Entries[0].Limit == 9 })
	}
	t.Logf("in force on all pods after %s", time.Since(start))
	after, _ := p.pods(t)
	if after <= before {
		t.Errorf("revision %d after %d", after, before)
	}
	await.That(t, "all pods report the next revision", func() bool { return p.allAt(t, after, 3) })
	t.Log(tg(t, "pods", "--control", p.url))
	if text := tg(t, "audit", "--rules", p.url); !strings.Contains(text, "more") {
		t.Errorf("the audit says\n%s", text)
	}
	// On a pod the rules can be read, and are changed elsewhere.
	if text := tg(t, "rules", "list", "--rules", "http://"+pods[0].admin); !strings.Contains(text, "token_bucket") {
		t.Errorf("got %s", text)
	}
	code, _, stderr := run(t, nil, "rules", "delete", "a", "--yes", "--rules", "http://"+pods[0].admin)
	if code != 1 || !strings.Contains(stderr, "change them there") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// While the rules are away no check changes, and a pod that starts works from its
// snapshot.
func TestFleet_controlAway(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	p := control(t, "127.0.0.1:0", "--rules", database)
	address := strings.TrimPrefix(p.url, "http://")
	snapshot := filepath.Join(t.TempDir(), "snapshot.json")
	pod := serveAt(t, "--rules", p.url, "--pod-id", "a", "--snapshot-file", snapshot)
	await.That(t, "the snapshot on disk", func() bool { _, err := os.Stat(snapshot); return err == nil })
	p.stop()
	for i := range 5 {
		if r := pod.ask(t, "a", 1); r.Verdict != "allow" || r.Entries[0].Remaining != int64(4-i) {
			t.Fatalf("check %d: %+v", i, r)
		}
	}
	if r := pod.ask(t, "a", 1); r.Verdict != "deny" {
		t.Errorf("got %+v", r)
	}
	late := serveAt(t, "--rules", p.url, "--pod-id", "b", "--snapshot-file", snapshot)
	if r := late.ask(t, "a", 0); r.Verdict != "allow" || r.Entries[0].Limit != 5 {
		t.Errorf("got %+v", r)
	}
	if log := late.stderr.String(); !strings.Contains(log, "last good snapshot") {
		t.Errorf("the log does not say so:\n%s", log)
	}
	// Another control plane's snapshot is none of ours.
	code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--admin", "", "--rules", "http://127.0.0.1:1", "--snapshot-file", snapshot)
	if code != 1 || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("exit %d, %s", code, stderr)
	}

	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	tg(t, "rules", "apply", file, "--yes", "--rules", database)
	control(t, address, "--rules", database)
	for _, s := range []*service{pod, late} {
		await.That(t, "the change on all pods", func() bool { return s.ask(t, "a", 0).Entries[0].Limit == 9 })
	}
}

// Overrides end by the control plane's clock, however wrong a pod's is.
func TestFleet_wrongClocks(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	p := control(t, "127.0.0.1:0", "--rules", database)
	ends := p.clock.now().Add(time.Minute).UTC().Format(time.RFC3339)
	tg(t, "overrides", "add", "--rules", p.url, "--rule", "a", "--key", "k", "--burst", "50", "--until", ends)

	var pods []*service
	for _, wrong := range []time.Duration{-time.Hour, 0, time.Hour} {
		on := newClock()
		on.at(wrong.Milliseconds())
		pods = append(pods, serveOn(t, on, "--rules", p.url, "--pod-id", fmt.Sprint("pod", wrong), "--snapshot-file", ""))
	}
	for _, step := range []struct {
		after time.Duration
		want  int64
	}{{0, 50}, {59 * time.Second, 50}, {2 * time.Second, 5}} {
		p.clock.ms.Add(step.after.Milliseconds())
		for i, pod := range pods {
			pod.clock.ms.Add(step.after.Milliseconds())
			if got := limitOf(t, pod, "k"); got != step.want {
				t.Errorf("pod %d, %s later: limit %d, want %d", i, step.after, got, step.want)
			}
		}
	}
}

// limitOf looks at the limit of a key.
func limitOf(t *testing.T, s *service, key string) int64 {
	t.Helper()
	r := s.post(t, fmt.Sprintf(`{"entries":[{"rule":"a","key":%q,"cost":0}]}`, key))
	if len(r.Entries) != 1 {
		t.Fatalf("got %+v", r)
	}
	return r.Entries[0].Limit
}

// A control plane that is killed while rules are put has kept all that it answered
// 200 for, each with its line of the audit.
func TestFleet_controlKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "tallygate")
	if text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	path := filepath.Join(dir, "t.db")
	cmd := exec.Command(binary, "control", "--rules", "sqlite:"+path, "--admin", "127.0.0.1:0")
	out := new(buffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	await.That(t, "the control plane", func() bool {
		_, rest, ok := strings.Cut(out.String(), "admin API and metrics on ")
		url, _, _ = strings.Cut(rest, " ")
		return ok && url != ""
	})
	var mu sync.Mutex
	kept := map[string]int{} // version by rule
	var sent atomic.Int64
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			id := fmt.Sprint("r", w)
			for version := 1; ; version++ {
				header, value := "If-Match", fmt.Sprintf(`"%d"`, version-1)
				if version == 1 {
					header, value = "If-None-Match", "*"
				}
				status := putRule(url, id, version+1, header, value)
				sent.Add(1)
				if status != http.StatusOK && status != http.StatusCreated {
					return
				}
				mu.Lock()
				kept[id] = version
				mu.Unlock()
			}
		})
	}
	await.That(t, "puts", func() bool { return sent.Load() > 40 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	group.Wait()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for id, version := range kept {
		v, err := store.Version(t.Context(), id, int64(version))
		if err != nil || !strings.Contains(string(v.Live), fmt.Sprintf(`"burst":%d`, version+1)) {
			t.Errorf("%s version %d was answered 200: %s, %v", id, version, v.Live, err)
		}
		lines, err := store.Audit(t.Context(), rulestore.AuditFilter{Rule: id, Limit: rulestore.MaxPage})
		if err != nil || len(lines) < version {
			t.Errorf("%s: %d lines of audit for %d versions, %v", id, len(lines), version, err)
		}
	}
	t.Logf("kept %v of %d", kept, sent.Load())
}

// putRule puts a rule and returns the status, 0 for none.
func putRule(url, id string, burst int, header, value string) int {
	body := fmt.Sprintf(`{"id":%q,"match":{"plan":"x"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":%d}`, id, burst)
	request, err := http.NewRequest(http.MethodPut, url+"/v1/rules/"+id, strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set(header, value)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// The control plane answers people, not checks: it waits for a store that is slow.
func TestControl_slowStore(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	proxy := redistest.NewProxy(t, redistest.Standalone(t).Addr)
	with := []string{"--rules", database, "--store", "redis://" + proxy.Addr, "--plain-identities"}
	p, hasty := control(t, "127.0.0.1:0", with...), control(t, "127.0.0.1:0", append(with, "--store-deadline", "5ms")...)
	proxy.Delay(50 * time.Millisecond)
	if got := tg(t, "keys", "reset", "acct_1", "--rule", "a", "--control", p.url); !strings.Contains(got, "1 bucket") {
		t.Errorf("got %s", got)
	}
	tg(t, "usage", "acct_1", "--control", p.url)
	if code, stdout, _ := run(t, nil, "keys", "reset", "acct_1", "--rule", "a", "--control", hasty.url); code != 1 {
		t.Errorf("a deadline that is set is not kept: exit %d, %s", code, stdout)
	}
}

// Two control planes on one store, as while one replaces another, are two to it.
func TestControl_twoOnOneStore(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	redis := redistest.Standalone(t)
	for range 2 {
		control(t, "127.0.0.1:0", "--rules", database, "--store", "redis://"+redis.Addr, "--plain-identities")
	}
	await.That(t, "a beat of each", func() bool {
		beats, _ := redis.MustDo(t, "KEYS", "tg:beat:*").([]any)
		return len(beats) == 2
	})
}
