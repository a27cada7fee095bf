package identity

import (
	"net/netip"
	"strings"
)

// hop is an address on the way of a request, and the text it was read from.
type hop struct {
	addr netip.Addr
	host string
}

// peer is the socket's other end.
type peer struct {
	hop
	// known says that it has an address, trusted that it is a proxy of ours: the
	// headers are its word.
	known, trusted bool
}

func (r *Resolver) peer(f *Facts) peer {
	p := peer{}
	p.hop, p.known = parseHop(f.Peer)
	p.trusted = r.hops > 0 || p.known && r.trusts(p.addr)
	return p
}

func parseHop(s string) (hop, bool) {
	addr, host, ok := parseAddress(s)
	return hop{addr, host}, ok
}

// client finds the client's address: from the socket outwards, past the trusted
// proxies, to the first address that is none of them. Each is told by the one
// before, so everything up to it is the word of somebody trusted; what stands left
// of it the client may have written, and it is not looked at.
//
// Where a proxy told no address (unknown, _hidden, junk, nothing) the proxy itself
// stands for its clients: all of them share its bucket, none chooses another.
func (r *Resolver) client(f *Facts, p *peer) (hop, bool) {
	if r.hops > 0 {
		return r.hop(f, p)
	}
	if !p.trusted {
		return p.hop, p.known
	}
	last := p.hop
	for list := r.forwarded(f); ; {
		next, ok := list.next()
		if !ok {
			return last, true
		}
		if last = next; !r.trusts(next.addr) {
			return last, true
		}
	}
}

// hop is client where the number of proxies is known and not their addresses. A
// list that is too short did not come through all of them: the peer is counted.
func (r *Resolver) hop(f *Facts, p *peer) (hop, bool) {
	list, found, ok := r.forwarded(f), hop{}, false
	for range r.hops {
		if found, ok = list.next(); !ok {
			return p.hop, p.known
		}
	}
	return found, true
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
	if r.rfc7239 {
		return hops{lines: f.lines(headerForwarded, "forwarded"), rfc7239: true, budget: MaxHeader}
	}
	return hops{lines: f.lines(headerForwardedFor, "x-forwarded-for"), budget: MaxHeader}
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

// next returns the next address, or false at the end and at what is none.
func (h *hops) next() (hop, bool) {
	if !h.open {
		if len(h.lines) == 0 {
			return hop{}, false
		}
		last := len(h.lines) - 1
		h.rest, h.open, h.lines = h.lines[last], true, h.lines[:last]
	}
	line := h.rest
	i := h.comma()
	element := line[i+1:]
	h.budget -= len(element) + 1
	if h.budget < 0 {
		return hop{}, false
	}
	h.rest, h.open = line[:max(i, 0)], i >= 0
	if h.rfc7239 {
		element = forOf(element)
	}
	found, ok := parseHop(element)
	found.host = own(found.host, line)
	return found, ok
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
