package identity_test

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/identity"
)

func mustResolver(t testing.TB, c identity.Config) *identity.Resolver {
	t.Helper()
	r, err := identity.NewResolver(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// resolve returns the attributes of facts, and the fault if there is one.
func resolve(t testing.TB, r *identity.Resolver, f identity.Facts) (map[string]string, *identity.SourceError) {
	t.Helper()
	attrs := map[string]string{"left": "over from another request"}
	err := r.Resolve(&f, attrs)
	var fault *identity.SourceError
	if err != nil && !errors.As(err, &fault) {
		t.Fatalf("Resolve returned %v, want a *SourceError", err)
	}
	return attrs, fault
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	one := identity.Config{TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8", "::ffff:172.16.0.0/108")}
	rfc := one
	rfc.Forwarding = "forwarded"
	hops := func(n int) identity.Config { return identity.Config{Hops: n} }
	xff := func(lines ...string) map[string][]string { return map[string][]string{"X-Forwarded-For": lines} }
	fwd := func(lines ...string) map[string][]string { return map[string][]string{"Forwarded": lines} }
	for _, tt := range []struct {
		name   string
		config identity.Config
		peer   string
		header map[string][]string
		want   string // "" for none
	}{
		{"the peer", one, "203.0.113.9:40001", nil, "203.0.113.9"},
		{"SEC-03 nobody is trusted", identity.Config{}, "203.0.113.9:40001", xff("192.0.2.77"), "203.0.113.9"},
		{"SEC-03 the peer is not trusted", one, "203.0.113.9:40001", xff("192.0.2.77"), "203.0.113.9"},
		{"SEC-01 only the right-most", one, "10.0.0.1:443", xff("198.51.100.1, 203.0.113.9"), "203.0.113.9"},
		{"SEC-01 over lines", one, "10.0.0.1:443", xff("198.51.100.1", "203.0.113.9"), "203.0.113.9"},
		{"past two proxies", one, "10.0.0.1:443", xff("198.51.100.1, 203.0.113.9, 10.0.0.7,fd00::3"), "203.0.113.9"},
		{"a trusted network in mapped form", one, "172.16.3.4:1", xff("203.0.113.9"), "203.0.113.9"},
		{"a mapped peer", one, "[::ffff:10.0.0.1]:443", xff("203.0.113.9"), "203.0.113.9"},
		{"all are trusted", one, "10.0.0.1:443", xff("10.0.0.3, 10.0.0.2"), "10.0.0.3"},
		{"a proxy that tells nothing", one, "10.0.0.1:443", nil, "10.0.0.1"},
		{"SEC-05 mapped", one, "10.0.0.1:443", xff("::ffff:c000:201"), "192.0.2.1"},
		{"SEC-07 port", one, "10.0.0.1:443", xff("203.0.113.9:40001"), "203.0.113.9"},
		{"SEC-07 brackets and port", one, "10.0.0.1:443", xff("[2001:DB8:1:2:0:0:0:1]:444"), "2001:db8:1:2::"},
		{"SEC-07 junk is its proxy", one, "10.0.0.1:443", xff("192.0.2.77, junk1"), "10.0.0.1"},
		{"SEC-07 junk after a good hop", one, "10.0.0.1:443", xff("192.0.2.77, junk1, 10.0.0.7"), "10.0.0.7"},
		{"unknown", one, "10.0.0.1:443", xff("192.0.2.77, unknown"), "10.0.0.1"},
		{"nothing appended", one, "10.0.0.1:443", xff("192.0.2.77, "), "10.0.0.1"},
		{"an empty line appended", one, "10.0.0.1:443", xff("192.0.2.77", ""), "10.0.0.1"},
		{"beyond 16 KiB", one, "10.0.0.1:443", xff("192.0.2.77" + strings.Repeat(",10.0.0.7", 2_000)), "10.0.0.7"},
		{"the other header is the client's", one, "10.0.0.1:443", map[string][]string{"X-Forwarded-For": {"203.0.113.9"}, "Forwarded": {"for=192.0.2.77"}}, "203.0.113.9"},
		{"a peer without address", one, "@", xff("203.0.113.9"), ""},

		{"RFC 7239", rfc, "10.0.0.1:443", fwd(`for=192.0.2.77, for=203.0.113.9;proto=https;by=10.0.0.1`), "203.0.113.9"},
		{"RFC 7239 any case, blanks", rfc, "10.0.0.1:443", fwd(`proto=https ; FOR = 203.0.113.9`), "203.0.113.9"},
		{"RFC 7239 quoted", rfc, "10.0.0.1:443", fwd(`For="[2001:db8:1:2::1]:4711"`), "2001:db8:1:2::"},
		{"RFC 7239 hidden", rfc, "10.0.0.1:443", fwd(`for=192.0.2.77, for=_gazonk`), "10.0.0.1"},
		{"RFC 7239 unknown", rfc, "10.0.0.1:443", fwd(`for=192.0.2.77, for=unknown`), "10.0.0.1"},
		{"RFC 7239 no for", rfc, "10.0.0.1:443", fwd(`for=192.0.2.77, by=10.0.0.1`), "10.0.0.1"},
		{"RFC 7239 two fors", rfc, "10.0.0.1:443", fwd(`for=192.0.2.77;for=203.0.113.9`), "10.0.0.1"},
		{"RFC 7239 a quote left open", rfc, "10.0.0.1:443", fwd(`for=", for=203.0.113.9`), "203.0.113.9"},
		{"RFC 7239 a comma in quotes", rfc, "10.0.0.1:443", fwd(`for=203.0.113.9;host="a,for=192.0.2.77"`), "203.0.113.9"},
		{"RFC 7239 an escaped quote", rfc, "10.0.0.1:443", fwd(`for=203.0.113.9;host="a\",for=192.0.2.77;x=\""`), "203.0.113.9"},
		{"RFC 7239 the other header is the client's", rfc, "10.0.0.1:443", map[string][]string{"X-Forwarded-For": {"192.0.2.77"}, "Forwarded": {"for=203.0.113.9"}}, "203.0.113.9"},

		{"one hop", hops(1), "192.168.7.7:1", xff("192.0.2.77, 203.0.113.9"), "203.0.113.9"},
		{"two hops", hops(2), "192.168.7.7:1", xff("192.0.2.77, 203.0.113.9, 192.168.1.1"), "203.0.113.9"},
		{"two hops, junk", hops(2), "192.168.7.7:1", xff("192.0.2.77, junk, 192.168.1.1"), "192.168.7.7"},
		{"two hops, too short a list", hops(2), "192.168.7.7:1", xff("192.0.2.77"), "192.168.7.7"},
		{"one hop by a Unix socket", hops(1), "@", xff("203.0.113.9"), "203.0.113.9"},
		{"cut to 56 bits", identity.Config{IPv6Prefix: 56}, "[2001:db8:1:2ff::1]:1", nil, "2001:db8:1:200::"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, fault := resolve(t, mustResolver(t, tt.config), identity.Facts{Peer: tt.peer, Header: tt.header})
			want := map[string]string{}
			if tt.want != "" {
				want["ip"] = tt.want
			}
			if fault != nil || !maps.Equal(got, want) {
				t.Errorf("got %v, %v; want %v", got, fault, want)
			}
		})
	}
	if got, _ := resolve(t, &identity.Resolver{}, identity.Facts{Peer: "[2001:db8:1:2::9]:1"}); got["ip"] != "2001:db8:1:2::" {
		t.Errorf("the zero Resolver says %v", got)
	}
}

// names is a certificate.
type names struct{ cn, san string }

func (n names) Name(san bool) string {
	if san {
		return n.san
	}
	return n.cn
}

// tokens verifies what it has.
type tokens map[string]map[string]string

func (v tokens) Claims(token string) (map[string]string, bool) {
	claims, ok := v[token]
	return claims, ok
}

func TestSources(t *testing.T) {
	t.Parallel()
	verifier := tokens{"good": {"sub": "u_17"}, strings.Repeat("t", identity.MaxHeader+1): {"sub": "u_18"}}
	long := strings.Repeat("k", identity.MaxKey)
	for _, tt := range []struct {
		name, source string
		facts        identity.Facts
		want         string
		fault        identity.Fault
	}{
		{"header", "header:x-api-key", header("X-Api-Key", "K1"), "K1", ""},
		{"SEC-10 any case in the configuration", "header:X-API-KEY", header("X-Api-Key", "k1"), "k1", ""},
		{"header, blanks", "header:X-Api-Key", header("X-Api-Key", " K1\t"), "K1", ""},
		{"header, absent", "header:X-Api-Key", header("X-Other", "K1"), "", ""},
		{"header, empty", "header:X-Api-Key", header("X-Api-Key", " "), "", ""},
		{"header twice", "header:X-Api-Key", header("X-Api-Key", "K1", "K2"), "", identity.Ambiguous},
		{"header twice the same", "header:X-Api-Key", header("X-Api-Key", "K1", "K1"), "", identity.Ambiguous},
		{"KEY-04 header of 4 KiB", "header:X-Api-Key", header("X-Api-Key", long), long, ""},
		{"KEY-04 header above", "header:X-Api-Key", header("X-Api-Key", long+"k"), "", identity.TooLong},
		{"header in metadata", "header:X-Api-Key", identity.Facts{LowerNames: true, Header: map[string][]string{"x-api-key": {"K1"}}}, "K1", ""},
		{"bearer key", "header:Authorization", header("Authorization", "bearer  K1"), "K1", ""},
		{"another scheme", "header:Authorization", header("Authorization", "Basic dTpw"), "", ""},
		{"bearer key twice", "header:Authorization", header("Authorization", "Bearer K1", "Bearer K2"), "", identity.Ambiguous},

		{"proxy's header", "proxy-header:X-Plan", from("10.0.0.1:1", "X-Plan", "growth"), "growth", ""},
		{"proxy's header from a client", "proxy-header:X-Plan", from("203.0.113.9:1", "X-Plan", "growth"), "", ""},
		{"client's copy kept by the proxy", "proxy-header:X-Plan", from("10.0.0.1:1", "X-Plan", "gold", "growth"), "", identity.Ambiguous},

		{"cookie", "cookie:session", header("Cookie", `a=1; session="s1"; Session=x`), "s1", ""},
		{"cookie on a second line", "cookie:session", header("Cookie", "a=1", "session=s1"), "s1", ""},
		{"cookie, absent", "cookie:session", header("Cookie", "sessio=s1; xsession=2"), "", ""},
		{"cookie twice", "cookie:session", header("Cookie", "session=s1; session=s2"), "", identity.Ambiguous},
		{"cookie twice on two lines", "cookie:session", header("Cookie", "session=s1", "session=s1"), "", identity.Ambiguous},
		{"cookies above 16 KiB", "cookie:session", header("Cookie", "session=s1; a="+strings.Repeat("x", identity.MaxHeader)), "", identity.TooLong},

		{"query", "query:api_key", identity.Facts{Query: "a=1&api_key=K1&b"}, "K1", ""},
		{"query, escaped", "query:api_key", identity.Facts{Query: "%61pi_key=K%2B1+x"}, "K+1 x", ""},
		{"query, bad escape", "query:api_key", identity.Facts{Query: "api_key=%zz"}, "", ""},
		{"query twice", "query:api_key", identity.Facts{Query: "api_key=K1&api%5fkey=K2"}, "", identity.Ambiguous},
		{"query above 16 KiB", "query:api_key", identity.Facts{Query: "api_key=K1&" + strings.Repeat("x", identity.MaxHeader)}, "", identity.TooLong},

		{"claim", "claim:sub", header("Authorization", "Bearer good"), "u_17", ""},
		{"claim of a bad token", "claim:sub", header("Authorization", "Bearer bad"), "", ""},
		{"claim of no token", "claim:sub", identity.Facts{}, "", ""},
		{"claim, absent", "claim:plan", header("Authorization", "Bearer good"), "", ""},
		{"claim of two tokens", "claim:sub", header("Authorization", "Bearer good", "Bearer good"), "", identity.Ambiguous},
		{"claim of a token above 16 KiB", "claim:sub", header("Authorization", "Bearer "+strings.Repeat("t", identity.MaxHeader+1)), "", ""},

		{"common name", "tls:cn", identity.Facts{Certificate: names{"svc", "spiffe://a/svc"}}, "svc", ""},
		{"alternative name", "tls:san", identity.Facts{Certificate: names{"svc", "spiffe://a/svc"}}, "spiffe://a/svc", ""},
		{"no certificate", "tls:cn", identity.Facts{}, "", ""},
		{"constant", "constant:internal: a", identity.Facts{}, "internal: a", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustResolver(t, identity.Config{
				TrustedProxies: prefixes("10.0.0.0/8"), Verifier: verifier,
				Sources: map[string]string{"who": tt.source, "other": "constant:x"},
			})
			got, fault := resolve(t, r, tt.facts)
			if got["who"] != tt.want || got["other"] != "x" || got["left"] != "" {
				t.Errorf("got %.80q, want %.80q", got, tt.want)
			}
			if _, there := got["who"]; there && tt.want == "" {
				t.Error("an absent identity is there and empty")
			}
			switch {
			case (fault != nil) != (tt.fault != ""):
				t.Errorf("fault %v, want %q", fault, tt.fault)
			case fault != nil && (fault.Fault != tt.fault || fault.Attribute != "who" || fault.Source != tt.source):
				t.Errorf("fault %+v, want %q of %s", fault, tt.fault, tt.source)
			case fault != nil && strings.Contains(fault.Error(), "K1"):
				t.Errorf("the error shows a secret: %v", fault)
			}
		})
	}
}

func header(name string, lines ...string) identity.Facts {
	return identity.Facts{Header: map[string][]string{name: lines}}
}

func from(peer, name string, lines ...string) identity.Facts {
	f := header(name, lines...)
	f.Peer = peer
	return f
}

func TestNewResolverRefuses(t *testing.T) {
	t.Parallel()
	source := func(attr, text string) identity.Config {
		return identity.Config{Sources: map[string]string{attr: text}}
	}
	many := identity.Config{Sources: map[string]string{}}
	for i := range identity.MaxSources + 1 {
		many.Sources["a"+string(rune('a'+i))] = "constant:x"
	}
	for _, tt := range []struct {
		name   string
		config identity.Config
		want   string // what the error says
	}{
		{"too many hops", identity.Config{Hops: 17}, "Hops 17 is not 0 to 16"},
		{"negative hops", identity.Config{Hops: -1}, "Hops -1"},
		{"hops and networks", identity.Config{Hops: 1, TrustedProxies: prefixes("10.0.0.0/8")}, "set one"},
		{"long prefix", identity.Config{IPv6Prefix: 65}, "IPv6Prefix 65 is not 1 to 64"},
		{"another header", identity.Config{Forwarding: "X-Real-Ip"}, `"X-Real-Ip" is neither`},
		{"no network", identity.Config{TrustedProxies: []netip.Prefix{{}}}, "is no network"},
		{"too many sources", many, "17 Sources are above 16"},
		{"no attribute", source("", "constant:x"), `identity: Sources: attribute "" of a source has 0 bytes, not 1 to 128`},
		{"the address", source("ip", "header:X-Real-Ip"), "attribute ip has no source"},
		{"the route", source("route", "header:X-Route"), "attribute route has no source"},
		{"no kind", source("a", "X-Api-Key"), "is not header:NAME"},
		{"another kind", source("a", "body:user"), "is not header:NAME"},
		{"no name", source("a", "header:"), "is not header:NAME"},
		{"a name with a blank", source("a", "header:X Api"), "stands in no header's name"},
		{"a forwarding header", source("a", "header:x-forwarded-for"), "name the trusted proxies"},
		{"all cookies", source("a", "header:cookie"), "cookie:NAME"},
		{"the host", source("a", "header:host"), "match by route"},
		{"a claim nobody verifies", source("a", "claim:sub"), "needs a Verifier"},
		{"a proxy nobody trusts", source("a", "proxy-header:X-Plan"), "no proxy is trusted"},
		{"another name of a certificate", source("a", "tls:ou"), "neither tls:cn nor tls:san"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := identity.NewResolver(tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// Names are spelt as net/http stores them, or no header would ever be found.
func TestHeaderNamesAreThoseOfNetHTTP(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x-api-key", "X-API-KEY", "xApiKey", "x--a", "x-1a", "x_a-b", "-x"} {
		r := mustResolver(t, identity.Config{Sources: map[string]string{"who": "header:" + name}})
		h := http.Header{}
		h.Set(name, "K1")
		if got, _ := resolve(t, r, identity.Facts{Header: h}); got["who"] != "K1" {
			t.Errorf("%s is not found under %s", name, textproto.CanonicalMIMEHeaderKey(name))
		}
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	r, f := typical(t)
	attrs := map[string]string{}
	_ = r.Resolve(&f, attrs)
	if n := testing.AllocsPerRun(100, func() { _ = r.Resolve(&f, attrs) }); n != 0 {
		t.Errorf("Resolve allocates %v times, want 0", n)
	}
	f.Header["X-Forwarded-For"] = []string{"2001:db8:1:2::9"}
	if n := testing.AllocsPerRun(100, func() { _ = r.Resolve(&f, attrs) }); n != 1 {
		t.Errorf("Resolve of an IPv6 client allocates %v times, want 1", n)
	}
}

// typical is a request through one proxy with a key and a plan.
func typical(t testing.TB) (*identity.Resolver, identity.Facts) {
	t.Helper()
	r := mustResolver(t, identity.Config{
		TrustedProxies: prefixes("10.0.0.0/8"),
		Sources:        map[string]string{"api_key": "header:X-Api-Key", "plan": "proxy-header:X-Plan"},
	})
	return r, identity.Facts{Peer: "10.0.0.1:40001", Header: map[string][]string{
		"X-Forwarded-For": {"198.51.100.1, 203.0.113.9"},
		"X-Api-Key":       {"acct_7Q2"},
		"X-Plan":          {"growth"},
		"User-Agent":      {"test"},
	}}
}

// The yardstick is what nobody gets around: reading the peer's address.
func BenchmarkResolve(b *testing.B) {
	b.Run("yardstick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := netip.ParseAddr("203.0.113.9"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("peer", func(b *testing.B) {
		attrs, f := map[string]string{}, identity.Facts{Peer: "203.0.113.9:40001"}
		var r identity.Resolver
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Resolve(&f, attrs)
		}
	})
	b.Run("proxy, key and plan", func(b *testing.B) {
		r, f := typical(b)
		attrs := map[string]string{}
		b.ReportAllocs()
		for b.Loop() {
			_ = r.Resolve(&f, attrs)
		}
	})
}

func TestCheckSource(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"header:X-Api-Key", "proxy-header:X-Plan", "cookie:s", "query:k", "claim:sub", "tls:cn", "tls:san", "constant:x"} {
		if err := identity.CheckSource("a", good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	err := identity.CheckSource("a", "body:user")
	if want := `source "body:user" of a is not header:NAME, `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
}
