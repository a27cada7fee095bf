package redistest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// victimDir is set in the child of TestServersDieWithTheTestBinary.
const victimDir = "REDISTEST_VICTIM"

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestStandalone(t *testing.T) {
	t.Parallel()
	srv := redistest.Standalone(t, "--maxmemory", "64mb")

	t.Run("answers every kind of reply", func(t *testing.T) {
		srv.MustDo(t, "SET", "k", "a\r\nb")
		if got := srv.MustDo(t, "GET", "k"); got != "a\r\nb" {
			t.Errorf("GET = %q", got)
		}
		if got := srv.MustDo(t, "GET", "none"); got != nil {
			t.Errorf("GET of a missing key = %v, want nil", got)
		}
		if got := srv.MustDo(t, "INCR", "n"); got != int64(1) {
			t.Errorf("INCR = %v, want 1", got)
		}
		got, _ := srv.MustDo(t, "EVAL", "return {1,'two',{3},false}", "0").([]any)
		if want := "[1 two [3] <nil>]"; fmt.Sprint(got) != want {
			t.Errorf("EVAL = %v, want %s", got, want)
		}
		_, err := srv.Do("LPUSH", "k", "v")
		var reply redistest.ReplyError
		if !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "WRONGTYPE") {
			t.Errorf("LPUSH on a string = %v, want WRONGTYPE", err)
		}
	})
	t.Run("takes arguments and lets DEBUG work", func(t *testing.T) {
		got, _ := srv.MustDo(t, "CONFIG", "GET", "maxmemory").([]any)
		if fmt.Sprint(got) != "[maxmemory 67108864]" {
			t.Errorf("maxmemory = %v", got)
		}
		srv.MustDo(t, "DEBUG", "SLEEP", "0")
	})
	t.Run("comes back empty after a crash", func(t *testing.T) {
		srv.MustDo(t, "SET", "k", "v")
		srv.Kill()
		if _, err := srv.Do("PING"); err == nil {
			t.Error("a killed server answered")
		}
		srv.Restart(t)
		if got := srv.MustDo(t, "DBSIZE"); got != int64(0) {
			t.Errorf("DBSIZE after a restart = %v, want 0", got)
		}
	})
	t.Run("answers late while paused", func(t *testing.T) {
		srv.Pause(t)
		const pause = 50 * time.Millisecond
		start := time.Now()
		time.AfterFunc(pause, func() { srv.Resume(t) })
		srv.MustDo(t, "PING")
		if d := time.Since(start); d < pause {
			t.Errorf("a paused server answered after %s", d)
		}
	})
	t.Run("refuses what a user may not", func(t *testing.T) {
		srv.AddUser(t, "pod", "secret", "~tg:*", "+get")
		srv.DisableDefaultUser(t)
		pod, err := srv.Dial("pod", "secret")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pod.Close() }()
		if _, err := pod.Do("GET", "tg:x"); err != nil {
			t.Error(err)
		}
		for _, args := range [][]string{{"GET", "other"}, {"SET", "tg:x", "1"}} {
			if _, err := pod.Do(args...); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%v = %v, want NOPERM", args, err)
			}
		}
		if _, err := srv.Dial("pod", "wrong"); err == nil || !strings.HasPrefix(err.Error(), "WRONGPASS") {
			t.Errorf("wrong password: %v, want WRONGPASS", err)
		}
		nobody, err := srv.Dial("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nobody.Close() }()
		if _, err := nobody.Do("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
			t.Errorf("no user: %v, want NOAUTH", err)
		}
	})
}

func TestServersDoNotShareAPort(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]bool{}
	for range 4 {
		wg.Go(func() {
			srv := redistest.Standalone(t)
			mu.Lock()
			defer mu.Unlock()
			if seen[srv.Port] {
				t.Errorf("port %d given twice", srv.Port)
			}
			seen[srv.Port] = true
		})
	}
	wg.Wait()
}

func TestBadArgumentIsToldWithTheLog(t *testing.T) {
	t.Parallel()
	_, err := redistest.Start(t.TempDir(), "--no-such-setting", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("error = %v, want the server's own words", err)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	if redistest.SharedCluster(t) != c {
		t.Error("SharedCluster started a second cluster")
	}
	if got := len(c.Replicas()); got != 3 {
		t.Errorf("%d replicas, want 3", got)
	}
	owners := map[int]bool{}
	for slot := range 16_384 {
		if slot%1_000 == 0 {
			owners[c.Owner(t, slot).Port] = true
		}
	}
	if len(owners) != 3 {
		t.Errorf("%d owners of slots, want 3", len(owners))
	}

	t.Run("moves a slot", func(t *testing.T) {
		slot := c.Slot(t, "{move}a")
		from := c.Owner(t, slot)
		to := c.Primaries()[0]
		if to == from {
			to = c.Primaries()[1]
		}
		from.MustDo(t, "MSET", "{move}a", "1", "{move}b", "2")
		c.StartMove(t, slot, to)
		c.MoveKeys(t, slot, to, "{move}a")
		for want, args := range map[string][]string{"ASK": {"GET", "{move}a"}, "TRYAGAIN": {"MGET", "{move}a", "{move}b"}} {
			if _, err := from.Do(args...); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v while the slot moves = %v, want %s", args, err, want)
			}
		}
		c.FinishMove(t, slot, to)
		if _, err := from.Do("GET", "{move}b"); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
			t.Errorf("GET at the old owner = %v, want MOVED", err)
		}
		if got := to.MustDo(t, "GET", "{move}b"); got != "2" {
			t.Errorf("GET at the new owner = %v, want 2", got)
		}
		if got := c.Owner(t, slot); got != to {
			t.Errorf("owner = %s, want %s", got.Addr, to.Addr)
		}
	})
	t.Run("is whole again after a failover", func(t *testing.T) {
		c := redistest.NewCluster(t)
		slot := c.Slot(t, "failover")
		old := c.Owner(t, slot)
		old.Kill()
		for end := time.Now().Add(15 * time.Second); c.Owner(t, slot) == old; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no replica was promoted")
			}
		}
		old.Restart(t)
		if err := c.Settled(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	where := func() string {
		at, _ := s.Sentinels[0].MustDo(t, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.SentinelName).([]any)
		return fmt.Sprint(at)
	}
	if got, want := where(), fmt.Sprintf("[127.0.0.1 %d]", s.Primary.Port); got != want {
		t.Errorf("primary = %s, want %s", got, want)
	}
	if got := len(s.Addrs()); got != 3 {
		t.Errorf("%d sentinels, want 3", got)
	}
	s.Primary.Kill()
	want := fmt.Sprintf("[127.0.0.1 %d]", s.Replica.Port)
	for end := time.Now().Add(20 * time.Second); where() != want; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("primary = %s, want %s", where(), want)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	srv := redistest.TLS(t, "--tls-auth-clients", "yes")
	if got := srv.MustDo(t, "PING"); got != "PONG" {
		t.Errorf("PING = %v", got)
	}
	plain, err := redistest.DialPlain(srv.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	if _, err := plain.Do("PING"); err == nil {
		t.Error("the server speaks without TLS too")
	}
}

// The victim starts a server and is killed before it could clean up.
func TestServersDieWithTheTestBinary(t *testing.T) {
	if dir := os.Getenv(victimDir); dir != "" {
		srv, err := redistest.Start(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(os.Stdout, "pid %d\n", redistest.PID(srv))
		select {}
	}
	t.Parallel()
	redistest.Standalone(t) // skips without Redis
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServersDieWithTheTestBinary$")
	victim.Env = append(os.Environ(), victimDir+"="+t.TempDir())
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
		t.Fatalf("the victim did not tell its server's pid: %v", err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	for end := time.Now().Add(5 * time.Second); running(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("redis-server %d outlived its test binary", pid)
		}
	}
}

// running tells a live process from a zombie that nobody has collected yet.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestWithoutRedis(t *testing.T) {
	for _, tt := range []struct{ name, ci, want string }{
		{"is skipped on a workplace", "", "skip"},
		{"fails in CI", "true", "fatal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			t.Setenv("CI", tt.ci)
			fake := &fakeT{TB: t}
			func() {
				defer func() { _ = recover() }()
				redistest.Standalone(fake)
			}()
			if fake.end != tt.want {
				t.Errorf("ended by %q, want %q", fake.end, tt.want)
			}
		})
	}
}

// fakeT records how a helper ended its test.
type fakeT struct {
	testing.TB
	end string
}

func (f *fakeT) Skip(...any)  { f.end = "skip"; panic(f.end) }
func (f *fakeT) Fatal(...any) { f.end = "fatal"; panic(f.end) }
func (f *fakeT) Helper()      {}
