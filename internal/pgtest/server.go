// Package pgtest starts a real PostgreSQL for tests, one server a test binary on a
// port of its own, and gives each test a database:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//	url := pgtest.Database(t, func(url string) error { return migrate(url) })
//
// It needs the programs of Debian's package postgresql; without them tests are
// skipped, and say so, or with CI=true fail. PostgreSQL refuses to run as root:
// the server then is a process of the user postgres. It keeps nothing, does not
// sync to the disk, trusts everybody on this machine and dies with the test binary.
package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testport"
)

const (
	// startTimeout bounds how long a server may take to answer.
	startTimeout = 30 * time.Second
	pollEvery    = 20 * time.Millisecond
	// firstPort and lastPort bound the ports: beside those of redistest, below the
	// ephemeral ones.
	firstPort, lastPort = 22_800, 23_900
	startTries          = 5
)

// Server is one running server.
type Server struct {
	// Port is where it listens, on 127.0.0.1.
	Port int
	port *testport.Port // held until remove: a server that was killed has it again
	dir  string
	bin  string

	mu   sync.Mutex // guards cmd and done
	cmd  *exec.Cmd
	done chan struct{}
}

// programs returns the folder of initdb and postgres, "" if there is none.
func programs() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(target)
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

// need skips or fails the test if there is no PostgreSQL.
func need(t testing.TB) string {
	t.Helper()
	bin := programs()
	if bin != "" {
		return bin
	}
	const why = "NOT TESTED: PostgreSQL is not installed (on Debian: scripts/install-postgres.sh)"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// start makes a new server in a folder of its own and returns when it answers.
func start(bin string) (*Server, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin}
	if err := s.init(); err != nil {
		s.remove()
		return nil, err
	}
	// Somebody else may take a port between our look and the server's: then the next one.
	for range startTries {
		held, taken := testport.Take(firstPort, lastPort)
		if taken != nil {
			err = taken
			break
		}
		s.Port, s.port = held.Number, held
		if err = s.Start(); err == nil {
			return s, nil
		}
		s.Kill()
		held.Release()
	}
	s.remove()
	return nil, err
}

// init makes the server's folder.
func (s *Server) init() error {
	who, err := asPostgres()
	if err != nil {
		return err
	}
	if who != nil {
		if err := os.Chown(s.dir, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), "-D", filepath.Join(s.dir, "data"), //nolint:gosec,noctx // a fixed program
		"-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// asPostgres is the user to run as; nil where that is oneself.
func asPostgres() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // oneself is a good answer
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}, nil
}

// Start starts the server, also after Kill, and returns when it answers.
func (s *Server) Start() error {
	who, err := asPostgres()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", filepath.Join(s.dir, "data"), //nolint:gosec,noctx // a fixed program; its life is Kill's
		"-c", "listen_addresses=127.0.0.1", "-p", strconv.Itoa(s.Port), "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "shared_buffers=16MB", "-c", "autovacuum=off")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.SysProcAttr = dieWithParent(who)
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel's "parent" is the thread that forked, and Go ends idle threads.
		runtime.LockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	return s.answers(done)
}

// answers waits until the server takes connections.
func (s *Server) answers(done <-chan struct{}) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	late := time.After(startTimeout)
	for {
		select {
		case <-done:
			return fmt.Errorf("postgres ended:\n%s", s.Log())
		case <-late:
			return fmt.Errorf("postgres did not answer within %s:\n%s", startTimeout, s.Log())
		case <-tick.C:
		}
		if s.ready() {
			return nil
		}
	}
}

// ready reads what the server says of itself: a port could answer for another.
func (s *Server) ready() bool {
	state, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(state)), "ready")
}

// Kill ends the server at once, connections cut; Start brings it back with what
// was committed.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	if cmd == nil || cmd.Process == nil {
		return
	}
	// SIGQUIT: its children end too, which SIGKILL would leave to themselves.
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		_ = cmd.Process.Kill()
	}
	<-done
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// URL names a database on the server for a user.
func (s *Server) URL(user, database string) string {
	return "postgres://" + user + "@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) + "/" + database + "?sslmode=disable"
}

func (s *Server) remove() {
	_ = os.RemoveAll(s.dir)
	if s.port != nil {
		s.port.Release()
	}
}
