package identity_test

import (
	"fmt"
	"net/netip"

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

// Accounts are counted by key, and the plan is believed from the proxy alone.
func ExampleResolver_Resolve() {
	resolver, err := identity.NewResolver(identity.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Sources:        map[string]string{"api_key": "header:X-Api-Key", "plan": "proxy-header:X-Plan"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	attrs := map[string]string{} // used again for the next request
	for _, peer := range []string{"10.0.0.7:40001", "203.0.113.9:40001"} {
		err := resolver.Resolve(&identity.Facts{Peer: peer, Header: map[string][]string{
			"X-Forwarded-For": {"198.51.100.4"},
			"X-Api-Key":       {"acct_7Q2"},
			"X-Plan":          {"growth"},
		}}, attrs)
		fmt.Println(attrs, err)
	}
	err = resolver.Resolve(&identity.Facts{Header: map[string][]string{"X-Api-Key": {"a", "b"}}}, attrs)
	fmt.Println(err)
	// Output:
	// map[api_key:acct_7Q2 ip:198.51.100.4 plan:growth] <nil>
	// map[api_key:acct_7Q2 ip:203.0.113.9] <nil>
	// identity api_key: header:X-Api-Key is there more than once; send it once
}
