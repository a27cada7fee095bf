package identity

import (
	"net/netip"
	"strings"
)

// peer is the socket's other end, as parseAddress reads it. trusted says that it is
// a proxy of ours: the headers are its word.
//
// Address and text are two values here, not a struct: that would have more words than
// the compiler keeps in registers, and copies of it took a quarter of Resolve's time.
func (r *Resolver) peer(f *Facts) (addr netip.Addr, host string, trusted bool) {
	addr, host = parseAddress(f.Peer)
	return addr, host, r.hops > 0 || addr.IsValid() && r.trusts(addr)
}

// client finds the client's address behind a trusted peer: from the socket outwards,
// past the trusted proxies, to the first address that is none of them. Each is told
// by the one before, so everything up to it is the word of somebody trusted; what
// stands left of it the client may have written, and it is not looked at.
//
// Where a proxy told no address (unknown, _hidden, junk, nothing) the proxy itself
// stands for its clients: all of them share its bucket, none chooses another.
func (r *Resolver) client(f *Facts, peer netip.Addr, peerHost string) (addr netip.Addr, host string) {
	if r.hops > 0 {
		return r.hop(f, peer, peerHost)
	}
	list := r.forwarded(f)
	for addr, host = peer, peerHost; ; {
		next, nextHost := list.next()
		if !next.IsValid() {
			return addr, host
		}
		if addr, host = next, nextHost; !r.trusts(addr) {
			return addr, host
		}
	}
}

// hop is client where the number of proxies is known and not their addresses. A
// list that is too short did not come through all of them: the peer is counted.
func (r *Resolver) hop(f *Facts, peer netip.Addr, peerHost string) (addr netip.Addr, host string) {
	list := r.forwarded(f)
	for range r.hops {
		if addr, host = list.next(); !addr.IsValid() {
			return peer, peerHost
		}
	}
	return addr, host
}

// trusts reports whether an address is one of the trusted proxies'.
func (r *Resolver) trusts(addr netip.Addr) bool {
	for _, p := range r.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// forwarded returns the addresses that proxies told.
func (r *Resolver) forwarded(f *Facts) hops {
	exact, lower := headerForwardedFor, "x-forwarded-for"
	if r.rfc7239 {
		exact, lower = headerForwarded, "forwarded"
	}
	return hops{lines: f.lines(exact, lower), rfc7239: r.rfc7239, budget: MaxHeader}
}

// hops reads addresses from the right: the last line first, in it the last
// element first.
type hops struct {
	lines   []string
	rest    string // what is not yet read of the line after lines
	open    bool   // rest is still to be read, even if it is ""
	rfc7239 bool
	budget  int // bytes that are still read
}

// next returns the next address, or none at the end and at what is no address.
func (h *hops) next() (addr netip.Addr, host string) {
	if !h.open {
		if len(h.lines) == 0 {
			return netip.Addr{}, ""
		}
		last := len(h.lines) - 1
		h.rest, h.open, h.lines = h.lines[last], true, h.lines[:last]
	}
	line := h.rest
	i := h.comma()
	element := line[i+1:]
	h.budget -= len(element) + 1
	if h.budget < 0 {
		return netip.Addr{}, ""
	}
	h.rest, h.open = line[:max(i, 0)], i >= 0
	if h.rfc7239 {
		element = forOf(element)
	}
	addr, host = parseAddress(element)
	return addr, own(host, line)
}

// comma returns where the last element of rest begins, less one. It reads from the
// right, so that a quote which the client left open cannot swallow what a proxy
// has appended.
func (h *hops) comma() int {
	if !h.rfc7239 {
		return strings.LastIndexByte(h.rest, ',')
	}
	quoted := false
	for i := len(h.rest) - 1; i >= 0; i-- {
		switch h.rest[i] {
		case '"':
			quoted = quoted == escaped(h.rest[:i])
		case ',':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// escaped reports whether what follows s is escaped by a backslash. A proxy writes
// the client's Host so, whose quotes must not end the proxy's own.
func escaped(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// forOf returns the value of the parameter for of one element of Forwarded, or ""
// if it has none or several.
func forOf(element string) string {
	var found string
	for rest := element; rest != ""; {
		var part string
		part, rest = cutParameter(rest)
		name, value, ok := strings.Cut(part, "=")
		if !ok || !strings.EqualFold(trimBlank(name), "for") {
			continue
		}
		if found != "" {
			return ""
		}
		value = trimBlank(value)
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		found = value
	}
	return found
}

// cutParameter splits at the first semicolon outside quotes.
func cutParameter(s string) (part, rest string) {
	quoted := false
	for i := range len(s) {
		switch s[i] {
		case '"':
			quoted = quoted == escaped(s[:i])
		case ';':
			if !quoted {
				return s[:i], s[i+1:]
			}
		}
	}
	return s, ""
}
