// Package testport hands out TCP ports to servers that tests start, so that test
// binaries that run at once, and tests of one binary, do not take each other's. A
// port is held from before its server listens until nobody needs it any more, also
// while that server is killed and started again.
//
// It is a lock file a port, and safe for concurrent use.
package testport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Port is one that nobody else is given as long as it is held.
type Port struct {
	Number int
	lock   *os.File
}

// Take holds a port from first to last on which nobody listens on 127.0.0.1, and
// neither so many above it.
func Take(first, last int, above ...int) (*Port, error) {
	// Where trees of before this package lock theirs.
	dir := filepath.Join(os.TempDir(), "tallygate-redistest-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of port locks: %w", err)
	}
	for n := first; n <= last; n++ {
		p, err := try(dir, n, above)
		if err != nil {
			return nil, err
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no free port in %d to %d", first, last)
}

// try returns nil if the port is taken. The lock goes with the process that holds
// it, however that ends; lock files stay, or two could hold the "same" one.
func try(dir string, n int, above []int) (*Port, error) {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of port %d: %w", n, err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && free(n, above) {
		return &Port{Number: n, lock: lock}, nil
	}
	_ = lock.Close()
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock port %d: %w", n, err)
	}
	return nil, nil
}

// free reports whether nobody listens on that port and those above it.
func free(n int, above []int) bool {
	var lc net.ListenConfig
	for _, more := range append([]int{0}, above...) {
		l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n+more)))
		if err != nil || l.Close() != nil {
			return false
		}
	}
	return true
}

// Release gives the port to others.
func (p *Port) Release() { _ = p.lock.Close() }
