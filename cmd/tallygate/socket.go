package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	// socketScheme begins the path of a Unix socket.
	socketScheme = "unix:"
	// maxSocketPath is what the system has room for in a socket's address.
	maxSocketPath = 107
	// socketAnswers bounds the question whether somebody listens on a socket.
	socketAnswers = time.Second
)

// addressOrSocket takes an address, the path of a Unix socket, or none.
func addressOrSocket(value string) error {
	path, ok := strings.CutPrefix(value, socketScheme)
	switch {
	case !ok:
		return addressOrNone(value)
	case path == "":
		return fmt.Errorf("%q has no path; write unix:/run/tallygate/grpc.sock", value)
	case len(path) > maxSocketPath:
		return fmt.Errorf("the path of %q has %d bytes, at most %d; shorten it", value, len(path), maxSocketPath)
	}
	return nil
}

// listenSocket listens on a Unix socket. One on which nobody listens, as a server leaves
// behind that was killed, is removed first: else it would never start again. Any other
// file stays.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) || !left(ctx, path) {
		return listener, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of a server that is gone: %w", err)
	}
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// left reports whether a path is a socket on which nobody listens.
func left(ctx context.Context, path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := (&net.Dialer{Timeout: socketAnswers}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
