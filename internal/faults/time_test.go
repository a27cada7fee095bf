package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
)

// TestClock: one primary's clock jumps by ten seconds, either way, and back. A jump
// fills buckets at most once; none locks anybody out.
func TestClock(t *testing.T) {
	for _, jump := range []time.Duration{10 * time.Second, -10 * time.Second} {
		t.Run(jump.String(), func(t *testing.T) {
			judged(t, func(f *fixture) *run {
				t := f.t
				clock := f.hurt().Clock(t)
				r := f.during(t, topologyWithin+time.Second, func(r *run) {
					r.began = time.Now()
					clock.Set(t, jump)
					hold(2 * time.Second)
					clock.Set(t, 0)
					r.back = time.Now()
				})
				r.quick()
				r.othersUnharmed()
				// The node itself may take the others for lost for a moment.
				r.normalWithin(topologyWithin, open, tight)
				span := time.Since(r.Start).Seconds()
				if got := len(of(r.Result, "0", tight, allow, fallbackAllow).Calls); float64(got) > 3*tightBurst+2*tightRate*span {
					t.Errorf("%d of one key admitted in %.2f s", got, span)
				}
				late := r.Between(r.back.Add(topologyWithin), time.Now())
				if got := of(late, "0", tight, allow); len(got.Calls) == 0 {
					t.Errorf("nothing of the tight key is admitted any more: %s", of(late, "0", tight))
				}
				return r
			})
		})
	}
}

// childURL is set in the process of TestPausedPod's pod.
const childURL = "FAULTS_CHILD"

// TestPausedPod: a pod that was suspended wakes up with a lease that has ended, and
// must not spend it: another pod has emptied the bucket meanwhile.
func TestPausedPod(t *testing.T) {
	if url := os.Getenv(childURL); url != "" {
		child(t, url)
		return
	}
	f := setup(t)
	key := f.keys[1][7]
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPausedPod$")
	child.Env = append(os.Environ(), childURL+"="+f.conf().URL)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	answers := bufio.NewReader(out)
	ask := func(n int) (allowed, local int) {
		t.Helper()
		if _, err := fmt.Fprintln(in, key, n); err != nil {
			t.Fatal(err)
		}
		line, err := answers.ReadString('\n')
		if err == nil {
			_, err = fmt.Sscanf(line, "%d %d", &allowed, &local)
		}
		if err != nil {
			t.Fatalf("the child said %q: %v", line, err)
		}
		return allowed, local
	}
	start := time.Now()
	before, local := ask(400)
	if local == 0 {
		t.Fatal("the pod has no lease to misuse")
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	ours := 0
	for denied := 0; denied < 3; { // denials of one moment may be remembered
		switch one(f.pod, check(key, leased)) {
		case allow:
			ours++
		case deny:
			denied++
		}
	}
	hold(time.Until(stopped.Add(long(3*time.Second, 10*time.Second))))
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	after, _ := ask(400)
	span := time.Since(start).Seconds() + 0.001
	t.Logf("admitted %d before the pause (%d from leases), %d by another pod, %d after it", before, local, ours, after)
	if most := leasedBurst + leasedRate*span; float64(before+ours+after) > most {
		t.Errorf("admitted %d + %d + %d in %.2f s, want at most %.0f", before, ours, after, span, most)
	}
}

// child is a pod that does as it is told: key and number in, what was admitted and
// what of it from a lease out.
func child(t *testing.T, url string) {
	t.Helper()
	conf := config(url)
	conf.Deadline = time.Second
	l := pod(t, connect(t, conf))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var key string
		var n, allowed, local int
		if _, err := fmt.Sscan(lines.Text(), &key, &n); err != nil {
			t.Fatal(err)
		}
		var v tallygate.Verdict
		for range n {
			if err := l.Decide(context.Background(), check(key, leased), &v); err == nil && v.Allow && v.Degraded == "" {
				allowed++
				if strings.HasPrefix(string(v.Entries[0].Source), string(tallygate.SourceLease)) {
					local++
				}
			}
			time.Sleep(time.Millisecond) // a pace, for which the pod takes leases
		}
		_, _ = io.WriteString(os.Stdout, fmt.Sprintln(allowed, local))
	}
}
