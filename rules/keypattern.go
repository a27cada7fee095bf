package rules

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/identity"
)

// spot is what an override is for: one key, or all that match a pattern. Two
// spellings of one are the same spot.
type spot struct {
	// text is the encoded key, the network or the pattern in its one form.
	text string
	kind spotKind
	net  netip.Prefix
}

type spotKind uint8

const (
	exactKey spotKind = iota
	network
	wildcard
)

// pattern reports whether the spot is more than one key.
func (s *spot) pattern() bool { return s.kind != exactKey }

// spotOf reads the key of an override of a rule that counts by these names.
// Patterns are for one name: in a list each part would be a question of its own.
func (c *Compiled) spotOf(key []string) (spot, error) {
	one := len(c.rule.Identity) == 1 && len(key) == 1
	star := slices.ContainsFunc(key, func(part string) bool { return strings.Contains(part, "*") })
	switch {
	case star && !one:
		return spot{}, &KeyError{Rule: c.rule.ID, Attribute: "key", Message: "patterns (*) are only for rules that count by one name"}
	case star:
		return spot{text: key[0], kind: wildcard}, nil
	case one && c.byIP() && strings.Contains(key[0], "/"):
		net, message := parseNetwork(key[0])
		if message != "" {
			return spot{}, &KeyError{Rule: c.rule.ID, Attribute: attrIP, Message: message}
		}
		return spot{text: net.String(), kind: network, net: net}, nil
	}
	text, err := c.KeyOf(key)
	return spot{text: text}, err
}

// parseNetwork reads a network in CIDR form. IPv4-mapped IPv6 is IPv4, as it is for
// addresses.
func parseNetwork(s string) (netip.Prefix, string) {
	net, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, quote(s) + " is not a network such as 203.0.113.0/24 or 2001:db8::/32"
	}
	if net.Addr().Is4In6() {
		if net.Bits() < 96 {
			return netip.Prefix{}, quote(s) + " is wider than the IPv4 addresses in IPv6, ::ffff:0:0/96"
		}
		net = netip.PrefixFrom(net.Addr().Unmap(), net.Bits()-96)
	}
	if whole := net.Masked(); whole != net {
		return netip.Prefix{}, quote(s) + " is an address inside a network; the network is " + whole.String()
	}
	if net.Addr().Is6() && net.Bits() > identity.DefaultIPv6Prefix {
		return netip.Prefix{}, quote(s) + " is a part of one key: IPv6 counts by its /" + num(identity.DefaultIPv6Prefix)
	}
	return net, ""
}

// CanonicalKey returns an override's key in its one form: addresses and, for a rule
// that counts by ip alone, networks as they are counted. What is neither stays as
// it is. by is the rule's identity.
func CanonicalKey(by, key []string) []string {
	out := slices.Clone(key)
	for i, part := range out {
		if i >= len(by) || by[i] != attrIP {
			continue
		}
		if ip, ok := identity.IP(part); ok {
			out[i] = ip
		} else if net, message := parseNetwork(part); message == "" && len(by) == 1 && len(key) == 1 {
			out[i] = net.String()
		}
	}
	return out
}

// IsPattern reports whether an override's key stands for more than one key of a rule
// that counts by these names: it has a *, or is a network.
func IsPattern(by, key []string) bool {
	if len(by) != 1 || len(key) != 1 {
		return false
	}
	return strings.Contains(key[0], "*") || by[0] == attrIP && strings.Contains(key[0], "/")
}

// keyPattern is a pattern of a rule and the numbers of the keys that it is the best
// match of.
type keyPattern struct {
	spot
	pattern
	entry    *entry
	literals int // bytes that are no *
	rank     int // place in patterns.list
}

func newKeyPattern(s spot, e *entry) *keyPattern {
	p := &keyPattern{spot: s, entry: e}
	if s.kind == wildcard {
		p.pattern = compilePattern(s.text)
		p.literals = len(s.text) - strings.Count(s.text, "*")
	}
	return p
}

// byRankOf orders patterns, those that win first: networks by length, then
// wildcards by their literal bytes, then the text.
func byRankOf(a, b *keyPattern) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(b.net.Bits(), a.net.Bits()),
		cmp.Compare(b.literals, a.literals),
		cmp.Compare(a.text(), b.text()),
	)
}

func (p *keyPattern) text() string { return p.spot.text }

// covers reports whether a key's value, and its address if it is one, match.
func (p *keyPattern) covers(value string, addr netip.Addr) bool {
	if p.kind == network {
		return addr.IsValid() && p.net.Contains(addr)
	}
	return p.matches(value)
}

// patterns are those of one rule, filed so that a key is compared with few of them.
// They are immutable.
type patterns struct {
	list []*keyPattern // those that win first
	nets map[netip.Prefix]*keyPattern
	// bits4 and bits6 are the lengths of networks there are, longest first.
	bits4, bits6 []int
	// Wildcards by what they begin with, those that begin with * by what they end
	// with, and those that have neither.
	begin, end affixes
	rest       []*keyPattern
}

// affixes finds wildcards by a beginning or an end of a key.
type affixes struct {
	lengths []int
	by      map[string][]*keyPattern
}

func (a *affixes) add(text string, p *keyPattern) {
	if a.by == nil {
		a.by = map[string][]*keyPattern{}
	}
	if !slices.Contains(a.lengths, len(text)) {
		a.lengths = append(a.lengths, len(text))
	}
	a.by[text] = append(a.by[text], p)
}

// newPatterns files a list; nil for none.
func newPatterns(list []*keyPattern) *patterns {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, byRankOf)
	out := &patterns{nets: map[netip.Prefix]*keyPattern{}}
	for i, shared := range list {
		p := new(keyPattern) // the list's may be another snapshot's too
		*p = *shared
		p.rank = i
		out.list = append(out.list, p)
		switch {
		case p.kind == network:
			out.nets[p.net] = p
			bits := &out.bits4
			if p.net.Addr().Is6() {
				bits = &out.bits6
			}
			if n := len(*bits); n == 0 || (*bits)[n-1] != p.net.Bits() {
				*bits = append(*bits, p.net.Bits())
			}
		case p.pieces[0] != "":
			out.begin.add(p.pieces[0], p)
		case p.pieces[len(p.pieces)-1] != "":
			out.end.add(p.pieces[len(p.pieces)-1], p)
		default:
			out.rest = append(out.rest, p)
		}
	}
	return out
}

// find returns the best match of an encoded key, nil for none. It does not allocate.
func (ps *patterns) find(key string) *keyPattern {
	value, addr, ok := patternValue(key, len(ps.nets) > 0)
	if !ok {
		return nil
	}
	if best := ps.findNet(addr); best != nil {
		return best
	}
	var best *keyPattern
	for _, n := range ps.begin.lengths {
		if n <= len(value) {
			best = better(best, ps.begin.by[value[:n]], value)
		}
	}
	for _, n := range ps.end.lengths {
		if n <= len(value) {
			best = better(best, ps.end.by[value[len(value)-n:]], value)
		}
	}
	return better(best, ps.rest, value)
}

func (ps *patterns) findNet(addr netip.Addr) *keyPattern {
	bits := ps.bits4
	if addr.Is6() {
		bits = ps.bits6
	}
	for _, n := range bits {
		net, err := addr.Prefix(n)
		if err != nil {
			return nil
		}
		if p := ps.nets[net]; p != nil {
			return p
		}
	}
	return nil
}

// better returns the best of those that match and of best. They are in the order
// of their ranks.
func better(best *keyPattern, among []*keyPattern, value string) *keyPattern {
	for _, p := range among {
		if best != nil && best.rank < p.rank {
			return best
		}
		if p.matches(value) {
			return p
		}
	}
	return best
}

// patternValue returns the one value of an encoded key, and its address if that is
// asked for and it is one. A caller without identity has no value that a pattern
// could match: its address is not what the rule counts by.
func patternValue(key string, address bool) (value string, addr netip.Addr, ok bool) {
	if strings.HasPrefix(key, "\x00") {
		_, rest, found := strings.Cut(key, ":")
		if !found || key[1] < '0' || key[1] > '9' {
			return "", addr, false
		}
		key = rest
	}
	if address {
		addr, _ = netip.ParseAddr(key) // the zero Addr is in no network
	}
	return key, addr, true
}
