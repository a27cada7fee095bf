package redisstore_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// wire is a connection to a server of which what the server says is changed.
type wire struct {
	net.Listener
	to     string
	mangle func([]byte) []byte
}

// startWire serves until the test ends.
func startWire(t *testing.T, w *wire) *wire {
	t.Helper()
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := w.Accept()
			if err != nil {
				return
			}
			group.Go(func() { w.serve(client) })
		}
	})
	t.Cleanup(func() { _ = w.Close(); group.Wait() })
	return w
}

// serve copies both ways until one side hangs up.
func (w *wire) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if _, err := client.Write(w.mangle(buf[:n])); err != nil {
			return
		}
	}
}
