package identity_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/identity"
)

// junk are pieces of which hostile headers are made.
func junk() []string {
	return []string{
		"", ",", ";", `"`, `\`, `\"`, " ", "\t", "=", "for=", "FOR=", "by=", "host=", "unknown", "_x", "192.0.2.77",
		"10.0.0.7", "10.0.0.8:1", "::ffff:192.0.2.77", "[", "]", "[2001:db8::1]:1", ":", "%00", "\x00", "é", "999",
	}
}

// With one trusted hop the answer is what that hop saw, whatever the client wrote
// before it, in any number of lines, and in the header that the hop does not write.
func TestAClientCannotChooseItsAddress(t *testing.T) {
	t.Parallel()
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(junk()), 0, 12).Draw(t, "pieces"), "")
	})
	xff := mustResolver(t, identity.Config{TrustedProxies: prefixes("10.0.0.1/32")})
	rfc := mustResolver(t, identity.Config{TrustedProxies: prefixes("10.0.0.1/32"), Forwarding: "Forwarded"})
	hop := mustResolver(t, identity.Config{Hops: 1})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(text, 0, 3).Draw(t, "lines")
		saw := rapid.SampledFrom([][2]string{
			{"203.0.113.9", "203.0.113.9"},
			{"[2001:db8:1:2::1]:443", "2001:db8:1:2::"},
			{"unknown", "10.0.0.1"},
			{"_hidden", "10.0.0.1"},
			{"", "10.0.0.1"},
		}).Draw(t, "saw")
		host := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text.Draw(t, "host"))
		element := rapid.SampledFrom([]string{
			`for="` + saw[0] + `"`, `for="` + saw[0] + `";host="` + host + `"`, `host="` + host + `";for="` + saw[0] + `"`,
		}).Draw(t, "element")
		// A proxy appends to the last line, or adds one.
		appended := func(s string) []string {
			if n := len(lines); n > 0 && rapid.Bool().Draw(t, "append") {
				return append(append([]string{}, lines[:n-1]...), lines[n-1]+", "+s)
			}
			return append(append([]string{}, lines...), s)
		}
		for _, tt := range []struct {
			name   string
			r      *identity.Resolver
			header map[string][]string
		}{
			{"X-Forwarded-For", xff, map[string][]string{"X-Forwarded-For": appended(saw[0]), "Forwarded": lines}},
			{"hops", hop, map[string][]string{"X-Forwarded-For": appended(saw[0]), "Forwarded": lines}},
			{"Forwarded", rfc, map[string][]string{"Forwarded": appended(element), "X-Forwarded-For": lines}},
		} {
			attrs := map[string]string{}
			f := identity.Facts{Peer: "10.0.0.1:443", Header: tt.header}
			if err := tt.r.Resolve(&f, attrs); err != nil || attrs["ip"] != saw[1] {
				t.Fatalf("%s: %q: got %q, %v; the hop saw %q", tt.name, tt.header, attrs["ip"], err, saw[1])
			}
		}
	})
}

func FuzzResolve(f *testing.F) {
	for _, s := range junk() {
		f.Add(s, s+",for=203.0.113.9", "session="+s, "k="+s)
	}
	resolvers := []*identity.Resolver{
		mustResolver(f, identity.Config{TrustedProxies: prefixes("10.0.0.0/8"), Sources: map[string]string{"s": "cookie:session", "k": "query:k", "h": "header:Authorization"}}),
		mustResolver(f, identity.Config{TrustedProxies: prefixes("10.0.0.0/8"), Forwarding: "Forwarded"}),
		mustResolver(f, identity.Config{Hops: 3}),
	}
	f.Fuzz(func(t *testing.T, peer, forwarded, cookie, query string) {
		facts := identity.Facts{Peer: peer, Query: query, Header: map[string][]string{
			"X-Forwarded-For": {forwarded}, "Forwarded": {forwarded}, "Cookie": {cookie}, "Authorization": {cookie},
		}}
		for _, p := range []string{peer, "10.0.0.1:1"} {
			facts.Peer = p
			for _, r := range resolvers {
				attrs := map[string]string{}
				_ = r.Resolve(&facts, attrs)
				ip, there := attrs["ip"]
				if again, ok := identity.IP(ip); there && (!ok || again != ip) {
					t.Fatalf("ip %q is not canonical", ip)
				}
				for name, value := range attrs {
					if value == "" || len(value) > identity.MaxKey {
						t.Fatalf("%s is %d bytes", name, len(value))
					}
				}
			}
		}
	})
}
