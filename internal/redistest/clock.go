package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed shim/clock.c
var shimSource []byte

// Clock is the time of day as one server sees it. It can be wrong: a library that
// is loaded before libc adds to it what a file says. It needs Linux and gcc.
type Clock struct {
	shim, file string
}

// errNoCompiler is why servers have no Clock on a machine without gcc.
var errNoCompiler = errors.New("gcc is not installed")

// buildShim compiles the library into dir.
func buildShim(dir string) (string, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return "", errNoCompiler
	}
	source, shim := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, shimSource, 0o600); err != nil {
		return "", fmt.Errorf("write the clock's source: %w", err)
	}
	out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", shim, source).CombinedOutput() //nolint:gosec,noctx // a fixed program; it takes a moment
	if err != nil {
		return "", fmt.Errorf("build the clock: %w\n%s", err, out)
	}
	return shim, nil
}

// newClock makes the clock of a server that is to run in dir; at first it is right.
func newClock(shim, dir string) (*Clock, error) {
	c := &Clock{shim: shim, file: filepath.Join(dir, "clock")}
	return c, c.move(0)
}

// env is what a server with this clock is started with.
func (c *Clock) env() []string {
	if c == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.shim, "REDISTEST_CLOCK=" + c.file}
}

func (c *Clock) move(offset time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the clock: %w", err)
	}
	defer func() { _ = f.Close() }()
	// One write of eight bytes: nobody sees half of it.
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// Set makes the clock wrong by offset from now on; 0 makes it right.
func (c *Clock) Set(t testing.TB, offset time.Duration) {
	t.Helper()
	if err := c.move(offset); err != nil {
		t.Fatal(err)
	}
}

// Clock returns the server's own clock. Without one, for want of gcc, the test is
// skipped: that is said aloud.
func (s *Server) Clock(t testing.TB) *Clock {
	t.Helper()
	if s.clock == nil {
		t.Skipf("NOT TESTED: redis-server %s has no clock of its own: %v", s.Addr, errNoCompiler)
	}
	return s.clock
}

// WithClock starts one server for this test whose clock can be set.
func WithClock(t testing.TB, args ...string) *Server {
	t.Helper()
	needRedis(t)
	dir := t.TempDir()
	shim, err := buildShim(dir)
	if errors.Is(err, errNoCompiler) {
		t.Skip("NOT TESTED: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	clock, err := newClock(shim, dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := startWith(plan{dir: dir, clock: clock, args: portArgs(args)})
	return started(t, s, err, s.watch)
}
