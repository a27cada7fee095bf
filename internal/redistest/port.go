package redistest

import (
	"fmt"
	"net"
	"strconv"

	"github.com/tallygate/tallygate/internal/testport"
)

// The ports servers listen on. A cluster node also takes busOffset more, and the
// ephemeral range starts at 32,768.
const (
	firstPort = 21_000
	lastPort  = 22_700
	busOffset = 10_000
)

// takePort holds a port on which, and on whose bus port, nobody listens.
func takePort() (*testport.Port, error) { return testport.Take(firstPort, lastPort, busOffset) }

func join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// loopback is where servers listen that need no address of their own.
const loopback = "127.0.0.1"

// anyHost is the host of servers that need no address of their own.
func anyHost(int) string { return loopback }

// ownHost is an address that belongs to a port, and so to nobody else as long as
// that is held: the whole of 127/8 is this machine's on Linux.
func ownHost(port int) string { return fmt.Sprintf("127.7.%d.%d", port>>8, port&0xff) }
