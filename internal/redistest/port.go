package redistest

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

// The ports servers listen on. A cluster node also takes busOffset more, and the
// ephemeral range starts at 32,768.
const (
	firstPort = 21_000
	lastPort  = 22_700
	busOffset = 10_000
)

// port is one that no other test binary uses as long as it is held.
type port struct {
	number int
	lock   *os.File
}

// takePort holds a port on which, and on whose bus port, nobody listens.
func takePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), "tallygate-redistest-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of port locks: %w", err)
	}
	for n := firstPort; n <= lastPort; n++ {
		p, err := tryPort(dir, n)
		if err != nil {
			return nil, err
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no free port in %d to %d", firstPort, lastPort)
}

// tryPort returns nil if the port is taken. The lock goes with the process that
// holds it, however that ends; lock files stay, or two could hold the "same" one.
func tryPort(dir string, n int) (*port, error) {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(n)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of port %d: %w", n, err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && free(n) && free(n+busOffset) {
		return &port{number: n, lock: lock}, nil
	}
	_ = lock.Close()
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock port %d: %w", n, err)
	}
	return nil, nil
}

// free reports whether nobody listens on that port.
func free(n int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", addr(n))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// release gives the port to others.
func (p *port) release() { _ = p.lock.Close() }

func addr(n int) string { return join(loopback, n) }

func join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// loopback is where servers listen that need no address of their own.
const loopback = "127.0.0.1"

// anyHost is the host of servers that need no address of their own.
func anyHost(int) string { return loopback }

// ownHost is an address that belongs to a port, and so to nobody else as long as
// that is held: the whole of 127/8 is this machine's on Linux.
func ownHost(port int) string { return fmt.Sprintf("127.7.%d.%d", port>>8, port&0xff) }
