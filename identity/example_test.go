package identity_test

import (
	"fmt"

	"github.com/tallygate/tallygate/identity"
)

func ExampleIP() {
	for _, s := range []string{"::ffff:c000:201", "192.0.2.1:40001", "[2001:DB8:1:2::99]:443", "junk"} {
		ip, ok := identity.IP(s)
		fmt.Printf("%q %v\n", ip, ok)
	}
	// Output:
	// "192.0.2.1" true
	// "192.0.2.1" true
	// "2001:db8:1:2::" true
	// "" false
}

func ExamplePlain() {
	key := identity.Key([]string{"acct_7Q2", "GET /v1/labels/{id}"})
	fmt.Printf("%s\n", identity.Plain{}.AppendTag(nil, "public-api", key))
	// Output:
	// public-api/acct_7Q2/GET%20%2Fv1%2Flabels%2F%7Bid%7D
}
