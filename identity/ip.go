package identity

import (
	"net/netip"
	"strings"
)

// DefaultIPv6Prefix is how many bits of an IPv6 address count: one /64 is one
// customer's network, in which a single machine may use any address it likes.
const DefaultIPv6Prefix = 64

// maxAddressBytes bounds what is parsed: the longest address with brackets,
// zone and port that a proxy would write.
const maxAddressBytes = 128

// IP returns the canonical form of a client address, and whether s is one.
//
// Port, brackets, zone and surrounding blanks are no part of it. An IPv4-mapped
// IPv6 address is the IPv4 address, in every spelling. An IPv6 address is cut to
// its first 64 bits and written as the first address of that network, so that
// IP of a canonical address is that address. Anything else is refused: junk must
// never become a key. It does not allocate when s is canonical already.
func IP(s string) (string, bool) { return IPPrefix(s, DefaultIPv6Prefix) }

// IPPrefix is [IP] with an IPv6 prefix of so many bits, 1 to 128; any other
// number means [DefaultIPv6Prefix].
func IPPrefix(s string, bits int) (string, bool) {
	if bits < 1 || bits > 128 {
		bits = DefaultIPv6Prefix
	}
	addr, host := parseAddress(s)
	if !addr.IsValid() {
		return "", false
	}
	return canonical(addr, host, bits), true
}

// canonical writes an address in the one form in which it is counted. host is the
// text it was read from, returned where it has that form already.
func canonical(addr netip.Addr, host string, bits int) string {
	if addr.Is4() && strings.IndexByte(host, ':') < 0 {
		return host // with dots an address has only one spelling
	}
	if addr.Is6() {
		if prefix, err := addr.Prefix(bits); err == nil {
			addr = prefix.Addr()
		}
	}
	var buf [64]byte
	out := addr.AppendTo(buf[:0])
	if string(out) == host {
		return host
	}
	return string(out)
}

// dotted reads the IPv4 address at the beginning of s, as netip.ParseAddr would:
// four numbers of 0 to 255 without leading zeros. n is how many bytes it has, 0 if
// there is none.
func dotted(s string) (addr netip.Addr, n int) {
	var ip [4]byte
	for i := range ip {
		if i > 0 {
			if n >= len(s) || s[n] != '.' {
				return netip.Addr{}, 0
			}
			n++
		}
		first, number := n, 0
		for ; n < len(s) && n < first+3 && s[n]-'0' <= 9; n++ {
			number = number*10 + int(s[n]-'0')
		}
		if n == first || number > 255 || s[first] == '0' && n > first+1 {
			return netip.Addr{}, 0
		}
		ip[i] = byte(number)
	}
	return netip.AddrFrom4(ip), n
}

// parseAddress reads an address in any form a peer or a proxy writes it:
// 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1%eth0]:443.
// host is its part of s without port and brackets. What is none is the zero Addr.
func parseAddress(s string) (addr netip.Addr, host string) {
	if len(s) > maxAddressBytes {
		return netip.Addr{}, ""
	}
	s = trimBlank(s)
	// Most are IPv4. Read in one go, without package netip, they take two thirds of the
	// time, and [Resolver.Resolve] behind a proxy four fifths.
	if addr, n := dotted(s); n > 0 && (n == len(s) || s[n] == ':' && isPort(s[n+1:])) {
		return addr, s[:n]
	}
	host, ok := trimPort(s)
	if !ok {
		return netip.Addr{}, ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, ""
	}
	return addr.WithZone("").Unmap(), host
}

// trimBlank removes the blanks that RFC 9110 allows around a value.
func trimBlank(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// trimPort removes brackets and port. A bare IPv6 address has no port: its last
// group only looks like one.
func trimPort(s string) (host string, ok bool) {
	if inner, found := strings.CutPrefix(s, "["); found {
		host, rest, closed := strings.Cut(inner, "]")
		if !closed {
			return "", false
		}
		port, hasPort := strings.CutPrefix(rest, ":")
		return host, rest == "" || hasPort && isPort(port)
	}
	host, port, found := strings.Cut(s, ":")
	if !found || strings.Contains(port, ":") {
		return s, true
	}
	return host, isPort(port)
}

// isPort accepts a number, or a port that RFC 7239 lets a proxy hide: "_name".
func isPort(s string) bool {
	hidden := strings.HasPrefix(s, "_")
	s = strings.TrimPrefix(s, "_")
	if s == "" || !hidden && len(s) > 5 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && !(hidden && isPlain(c)) {
			return false
		}
	}
	return true
}
