package redistest

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testport"
)

const (
	// startTimeout bounds the start of one server.
	startTimeout = 20 * time.Second
	// settleTimeout bounds the time in which a cluster or a sentinel set forms.
	settleTimeout = 60 * time.Second
	// pollEvery is the pause between two looks.
	pollEvery = 20 * time.Millisecond
	// adminUser is the user this package works as, so that a test may turn the
	// default user off.
	adminUser, adminPassword = "redistest", "redistest"
)

// Server is one running redis-server.
type Server struct {
	// Addr is host:port.
	Addr string
	Host string
	Port int
	// Dir holds the server's configuration, log and data.
	Dir string

	port *testport.Port
	conf *tls.Config // nil without TLS
	args []string
	// announced is the port a cluster node names to clients and other nodes.
	announced int
	clock     *Clock // nil for the machine's
	paused    atomic.Bool

	procMu sync.Mutex // guards proc; never held while a command runs
	proc   *process

	mu   sync.Mutex // guards conn, for the length of a command
	conn *Conn      // of Do; nil when none
}

// Standalone starts one server for this test. args are added to its command
// line, such as "--maxmemory", "2mb".
func Standalone(t testing.TB, args ...string) *Server {
	t.Helper()
	needRedis(t)
	s, err := startServer(t.TempDir(), args...)
	return started(t, s, err, s.watch)
}

// needRedis skips or fails the test if there is no redis-server.
func needRedis(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	const why = "NOT TESTED: redis-server is not installed (on Debian: apt-get install redis-server)"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// started fails the test on err, or has watch see to the rest of v's life.
func started[T any](t testing.TB, v T, err error, watch func(testing.TB)) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	watch(t)
	return v
}

// watch kills the server after the test and, if that failed, shows its log.
func (s *Server) watch(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the last lines of redis-server %s:\n%s", s.Addr, tail(s.Log(), 5))
		}
	})
}

// startServer starts a server in dir and returns when it answers.
func startServer(dir string, args ...string) (*Server, error) {
	return startWith(plan{dir: dir, args: portArgs(args)})
}

// portArgs puts the port before arguments that do not depend on it.
func portArgs(args []string) func(port int) ([]string, error) {
	return func(port int) ([]string, error) {
		return append([]string{"--port", strconv.Itoa(port)}, args...), nil
	}
}

// plan is how to start a server. Only dir and args are needed.
type plan struct {
	dir   string
	args  func(port int) ([]string, error)
	host  string      // where it listens, if that is not loopback; args say so too
	conf  *tls.Config // how to speak to it
	clock *Clock
}

// startWith starts a server with arguments that depend on its port, and again on
// another port if somebody took that one in between.
func startWith(plan plan) (*Server, error) {
	host := cmp.Or(plan.host, loopback)
	for tries := 1; ; tries++ {
		p, err := takePort()
		if err != nil {
			return nil, err
		}
		args, err := plan.args(p.Number)
		if err != nil {
			p.Release()
			return nil, err
		}
		s := &Server{
			Addr: join(host, p.Number), Host: host, Port: p.Number, Dir: plan.dir,
			port: p, conf: plan.conf, args: args, announced: p.Number, clock: plan.clock,
		}
		if err = s.start(); err == nil {
			return s, nil
		}
		s.stop()
		if tries == 5 || !strings.Contains(s.Log(), "Address already in use") {
			return nil, err
		}
	}
}

// start runs the process and waits until it answers.
func (s *Server) start() error {
	file := filepath.Join(s.Dir, "redis.conf")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(file, []byte(baseConfig), 0o600); err != nil {
			return fmt.Errorf("write the server's configuration: %w", err)
		}
	}
	proc, err := startProcess(s.Dir, filepath.Join(s.Dir, "redis.log"), s.clock.env(), "redis-server", append([]string{file}, s.args...)...)
	if err != nil {
		return err
	}
	s.procMu.Lock()
	s.proc = proc
	s.procMu.Unlock()
	return s.waitFor(startTimeout, "answer", func() error {
		info, err := s.Info("server")
		if pid := strconv.Itoa(proc.cmd.Process.Pid); err == nil && info["process_id"] != pid {
			s.hangUp()
			err = fmt.Errorf("process %s answers on its port", info["process_id"])
		}
		return err
	})
}

const baseConfig = `# written by redistest
bind 127.0.0.1
protected-mode no
daemonize no
save ""
appendonly no
enable-debug-command local
repl-diskless-sync yes
repl-diskless-sync-delay 0
user default on nopass ~* &* +@all
user ` + adminUser + ` on >` + adminPassword + ` ~* &* +@all
`

// waitFor looks until f returns nil, the time is over or the server has died.
func (s *Server) waitFor(d time.Duration, what string, f func() error) error {
	for end := time.Now().Add(d); ; time.Sleep(pollEvery) {
		err := f()
		if err == nil {
			return nil
		}
		if s.process().gone() {
			return fmt.Errorf("redis-server %s ended:\n%s", s.Addr, tail(s.Log(), 15))
		}
		if time.Now().After(end) {
			return fmt.Errorf("redis-server %s did not %s in %s: %w", s.Addr, what, d, err)
		}
	}
}

// process returns the server's child process; nil before the first start.
func (s *Server) process() *process {
	s.procMu.Lock()
	defer s.procMu.Unlock()
	return s.proc
}

// Dial opens a connection of the test's own: as this user, or as the default
// user if the name is "". The test closes it.
func (s *Server) Dial(user, password string) (*Conn, error) {
	c, err := dial(s.Addr, s.conf)
	if err != nil || user == "" {
		return c, err
	}
	if _, err := c.Do("AUTH", user, password); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Do sends one command as an administrator and returns its reply, see Conn.Do.
// It keeps one connection, and connects again after an error of the connection;
// it never sends a command twice.
func (s *Server) Do(args ...string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		c, err := s.Dial(adminUser, adminPassword)
		if err != nil {
			return nil, err
		}
		s.conn = c
	}
	reply, err := s.conn.Do(args...)
	var answered ReplyError
	if err != nil && !errors.As(err, &answered) {
		s.hangUpLocked()
	}
	return reply, err
}

func (s *Server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUpLocked()
}

func (s *Server) hangUpLocked() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// MustDo is Do that fails the test on an error.
func (s *Server) MustDo(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%s at %s: %v", strings.Join(args, " "), s.Addr, err)
	}
	return reply
}

// Info returns the fields of one section of INFO, such as "replication".
func (s *Server) Info(section string) (map[string]string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	return fields(text), nil
}

// fields reads lines of name:value.
func fields(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// AddUser makes an ACL user with that password and exactly these rights, such as
// "~tg:*", "+evalsha".
func (s *Server) AddUser(t testing.TB, name, password string, rights ...string) {
	t.Helper()
	s.MustDo(t, append([]string{"ACL", "SETUSER", name, "reset", "on", ">" + password}, rights...)...)
}

// DisableDefaultUser makes a client without a name and password of its own be
// refused.
func (s *Server) DisableDefaultUser(t testing.TB) {
	t.Helper()
	s.MustDo(t, "ACL", "SETUSER", "default", "off")
}

// Kill ends the server at once, as a crash would. Restart brings it back.
func (s *Server) Kill() {
	s.paused.Store(false)
	if p := s.process(); p != nil {
		p.kill()
	}
	s.hangUp()
}

// Restart starts a killed server again on its port: empty, since nothing was
// saved, and in a cluster as the node it was.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Pause stops the server in its tracks, connections open; Resume lets it go on.
// Nobody has to: a paused server is killed like any other.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.paused.Store(true)
	s.signal(t, syscall.SIGSTOP)
}

// Resume lets a paused server go on.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGCONT)
	s.paused.Store(false)
}

// Configure changes a setting at run time, until the test ends or the server is
// started again.
func (s *Server) Configure(t testing.TB, name, value string) {
	t.Helper()
	was, _ := s.MustDo(t, "CONFIG", "GET", name).([]any)
	if len(was) != 2 {
		t.Fatalf("redis-server %s has no setting %q", s.Addr, name)
	}
	former, _ := was[1].(string)
	s.MustDo(t, "CONFIG", "SET", name, value)
	t.Cleanup(func() {
		if !s.paused.Load() && !s.process().gone() {
			_, _ = s.Do("CONFIG", "SET", name, former)
		}
	})
}

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.process().signal(sig); err != nil {
		t.Fatalf("redis-server %s: %v", s.Addr, err)
	}
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.Dir, "redis.log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// stop kills the server for good and gives its port back.
func (s *Server) stop() {
	s.Kill()
	s.port.Release()
}

// stopAll stops servers that know of each other, and only then gives their ports to
// others: a sentinel that is left would make a replica of who listens there next.
func stopAll(list []*Server) {
	for _, s := range list {
		s.Kill()
	}
	for _, s := range list {
		s.port.Release()
	}
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
