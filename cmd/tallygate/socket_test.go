package main_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aRule = "rules:\n  - {id: a, covers_all: true, identity: ip, algorithm: fixed_window, limit: 5, window_s: 60}\n"

// A socket that a killed server left behind does not keep the next one from starting.
func TestSocket_leftBehind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as after SIGKILL
	_ = l.Close()
	serve(t, aRule, "--grpc", "unix:"+path)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// What is no socket, or one on which somebody listens, stays as it is.
func TestSocket_inUse(t *testing.T) {
	t.Parallel()
	path, file := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "file")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	write(t, file, "text")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, aRule)
	for _, at := range []string{path, file} {
		code, _, stderr := run(t, nil, "serve", "--rules", "file:"+rules, "--http", "127.0.0.1:0", "--admin", "", "--snapshot-file", "", "--grpc", "unix:"+at)
		if code == 0 || !strings.Contains(stderr, "address already in use") {
			t.Errorf("exit %d: %s", code, stderr)
		}
		if _, err := os.Lstat(at); err != nil {
			t.Error(err)
		}
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
