package identity

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// AttrIP is the attribute that holds the client's address.
const AttrIP = "ip"

// Config says whom a [Resolver] believes. The zero value believes the socket: the
// client is its peer, whatever the headers say.
type Config struct {
	// TrustedProxies are the networks of the proxies in front, whose word about
	// the client's address is believed. Nil means none.
	TrustedProxies []netip.Prefix
	// Hops is how many proxies are in front where their addresses are not known,
	// 0 to 16. It is used instead of TrustedProxies and is right only if nobody
	// can reach this process past them. 0 means off.
	Hops int
	// Forwarding is the header in which the proxies tell the client's address:
	// "X-Forwarded-For" (also for "") or "Forwarded" of RFC 7239. Only this one is
	// read: proxies pass the other on as the client wrote it.
	Forwarding string
	// IPv6Prefix is how many bits of an IPv6 address count, 1 to 64; 0 means
	// [DefaultIPv6Prefix].
	IPv6Prefix int
	// Sources says where each further attribute comes from, at most [MaxSources]:
	//
	//	header:X-Api-Key       the field's value; of Authorization the bearer token
	//	proxy-header:X-Plan    the same, but only from a trusted proxy
	//	cookie:session         a cookie's value
	//	query:api_key          a query parameter's value, decoded
	//	claim:sub              a claim of the verified bearer token
	//	tls:cn, tls:san        a name of the verified client certificate
	//	constant:internal      the text itself
	Sources map[string]string
	// Verifier checks bearer tokens, for sources that are claims.
	Verifier Verifier
}

// Resolver turns the facts of a request into attributes. It is immutable and may
// be used by any number of goroutines. The zero value is that of the zero [Config].
type Resolver struct {
	trusted  []netip.Prefix
	hops     int
	rfc7239  bool
	bits     int
	sources  []source
	verifier Verifier
}

const (
	headerForwardedFor = "X-Forwarded-For"
	headerForwarded    = "Forwarded"
	maxHops            = 16
)

// NewResolver returns the Resolver of a configuration.
func NewResolver(c Config) (*Resolver, error) {
	r := &Resolver{hops: c.Hops, bits: c.IPv6Prefix, verifier: c.Verifier}
	switch {
	case c.Hops < 0 || c.Hops > maxHops:
		return nil, fmt.Errorf("identity: Hops %d is not 0 to %d", c.Hops, maxHops)
	case c.Hops > 0 && len(c.TrustedProxies) > 0:
		return nil, fmt.Errorf("identity: Hops %d and TrustedProxies say the same in two ways; set one", c.Hops)
	case c.IPv6Prefix < 0 || c.IPv6Prefix > DefaultIPv6Prefix:
		return nil, fmt.Errorf("identity: IPv6Prefix %d is not 1 to %d bits", c.IPv6Prefix, DefaultIPv6Prefix)
	}
	switch {
	case c.Forwarding == "" || strings.EqualFold(c.Forwarding, headerForwardedFor):
	case strings.EqualFold(c.Forwarding, headerForwarded):
		r.rfc7239 = true
	default:
		return nil, fmt.Errorf("identity: Forwarding %q is neither %s nor %s", c.Forwarding, headerForwardedFor, headerForwarded)
	}
	for _, p := range c.TrustedProxies {
		if !p.IsValid() {
			return nil, fmt.Errorf("identity: TrustedProxies %v is no network; write it as 10.0.0.0/8", p)
		}
		r.trusted = append(r.trusted, unmapPrefix(p))
	}
	if len(c.Sources) > MaxSources {
		return nil, fmt.Errorf("identity: %d Sources are above %d", len(c.Sources), MaxSources)
	}
	for _, attr := range slices.Sorted(maps.Keys(c.Sources)) {
		s, err := parseSource(attr, c.Sources[attr])
		if err != nil {
			return nil, fmt.Errorf("identity: Sources: %w", err)
		}
		switch {
		case s.kind == fromClaim && c.Verifier == nil:
			return nil, fmt.Errorf("identity: source %q of %s needs a Verifier: an unverified claim is anybody's", s.text, attr)
		case s.kind == fromProxy && c.Hops == 0 && len(c.TrustedProxies) == 0:
			return nil, fmt.Errorf("identity: source %q of %s needs TrustedProxies or Hops: no proxy is trusted", s.text, attr)
		}
		r.sources = append(r.sources, s)
	}
	return r, nil
}

// Trusts reports whether the peer of a request is one of the trusted proxies, so that
// what it tells about the request that it passes on is believed.
func (r *Resolver) Trusts(f *Facts) bool {
	_, _, trusted := r.peer(f)
	return trusted
}

// Forwarding returns the header in which the proxies tell the client's address.
func (r *Resolver) Forwarding() string {
	if r.rfc7239 {
		return headerForwarded
	}
	return headerForwardedFor
}

// unmapPrefix turns a network of IPv4-mapped addresses into the IPv4 network.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	const mapped = 96
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked()
}

// Resolve replaces what attrs holds with the request's attributes: ip and those
// of Sources. What is absent, empty or unverified is left out, so that the rules
// for anonymous traffic apply. An error is a *[SourceError]; attrs then holds what
// was clear.
//
// It does not block and, while attrs has room, allocates only for an IPv6 address
// to cut, text to decode, a short value of a long line, and tokens.
func (r *Resolver) Resolve(f *Facts, attrs map[string]string) error {
	clear(attrs)
	addr, host, trusted := r.peer(f)
	if trusted {
		addr, host = r.client(f, addr, host)
	}
	if addr.IsValid() {
		attrs[AttrIP] = canonical(addr, host, cmp.Or(r.bits, DefaultIPv6Prefix))
	}
	var claims claimSet
	var fault error
	for i := range r.sources {
		s := &r.sources[i]
		value, bad := r.read(s, f, trusted, &claims)
		if bad == "" && len(value) > MaxKey {
			bad = TooLong
		}
		switch {
		case bad == "" && value != "":
			attrs[s.attr] = value
		case bad != "" && fault == nil:
			fault = &SourceError{Attribute: s.attr, Source: s.text, Fault: bad}
		}
	}
	return fault
}
