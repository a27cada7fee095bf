package testport_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/internal/testport"
)

// The ports of this test: below those that redistest and pgtest give out.
const first, last, above = 20_700, 20_703, 100

func take(t *testing.T, want int) *testport.Port {
	t.Helper()
	p, err := testport.Take(first, last, above)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	if p.Number != want {
		t.Errorf("port %d, want %d", p.Number, want)
	}
	return p
}

func listen(t *testing.T, n int) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// What is held is nobody else's, whether or not anybody listens on it; what others
// listen on is nobody's.
func TestTake(t *testing.T) {
	held := take(t, first)
	listen(t, first+1)
	listen(t, first+2+above)
	take(t, first+3)
	if p, err := testport.Take(first, last, above); err == nil {
		t.Errorf("port %d was given twice", p.Number)
	}
	held.Release()
	take(t, first)
}
