package envoyconfig

import "strings"

// Entry is one entry of a request's descriptor.
type Entry struct{ Key, Value string }

// Request is one descriptor of a request.
type Request struct {
	Entries []Entry
	// Override is a limit that the request brings along; nil for none.
	Override *Limit
}

// Match is the limit that their service counts for a descriptor.
type Match struct {
	// Node is the node with the limit; nil for an override.
	Node  *Descriptor
	Limit *Limit
	// Entries are what the counter is named by: the descriptor's, with the pattern in
	// place of a value whose matches share one counter.
	Entries []Entry
	// Shadow says that the status is OK whatever the count, Quota that it takes part in
	// the overall code as a quota.
	Shadow, Quota bool
	// Metric is the name under which it is counted in metrics.
	Metric string
}

// CounterKey returns the name of the counter, without the prefix and the start of the
// window that their service adds before and after.
func (m *Match) CounterKey(domain string) string {
	var b strings.Builder
	b.WriteString(domain + "_")
	for _, e := range m.Entries {
		b.WriteString(e.Key + "_" + e.Value + "_")
	}
	return b.String()
}

// Match returns the limit of one descriptor, nil where there is none. known says
// whether there is such a domain.
func (t *Tree) Match(domain string, req Request) (m *Match, known bool) {
	d := t.byName[domain]
	if d == nil {
		return nil, false
	}
	if req.Override != nil {
		return &Match{Limit: req.Override, Entries: req.Entries, Metric: metricOf(domain, req.Entries)}, true
	}
	at, metric := d.level, []string{domain}
	found := make([]*Descriptor, 0, len(req.Entries))
	for _, e := range req.Entries {
		n := at.find(e)
		if n == nil {
			return nil, true
		}
		found = append(found, n)
		metric = append(metric, n.metric(e))
		// A node without children ends the walk, and no other way is tried.
		at = n.level
	}
	if len(found) == 0 || found[len(found)-1].Limit == nil {
		return nil, true
	}
	last := found[len(found)-1]
	m = &Match{Node: last, Limit: last.Limit, Shadow: last.ShadowMode, Quota: last.QuotaMode, Metric: strings.Join(metric, ".")}
	if last.DetailedMetric {
		m.Metric = metricOf(domain, req.Entries)
	}
	for i, n := range found {
		e := req.Entries[i]
		if n.shared() {
			e.Value = n.Value
		}
		m.Entries = append(m.Entries, e)
	}
	return m, true
}

// Crosses reports whether an entry of the descriptor meets a node of another key, by a
// text key_value that reads both ways, whether there is a limit in the end or not.
func (t *Tree) Crosses(domain string, req Request) bool {
	d := t.byName[domain]
	if d == nil || req.Override != nil {
		return false
	}
	at := d.level
	for _, e := range req.Entries {
		n := at.find(e)
		if n == nil {
			return false
		}
		if n.Key != e.Key {
			return true
		}
		at = n.level
	}
	return false
}

// MatchAll returns the limit of each descriptor of a request, nil where there is none
// or another limit of the request replaces it.
func (t *Tree) MatchAll(domain string, reqs []Request) []*Match {
	out := make([]*Match, len(reqs))
	replaced := map[string]bool{}
	for i, req := range reqs {
		m, _ := t.Match(domain, req)
		if out[i] = m; m == nil {
			continue
		}
		for _, name := range m.Limit.Replaces {
			replaced[name] = true // also by one that is replaced itself
		}
	}
	for i, m := range out {
		if m != nil && !m.Limit.Unlimited && m.Limit.Name != "" && replaced[m.Limit.Name] {
			out[i] = nil
		}
	}
	return out
}

// OverLimit returns the overall answer, given for each match whether its count is over
// its limit: one that is no quota refuses alone, quotas only all together.
func OverLimit(matches []*Match, over []bool) bool {
	quotas, full := 0, 0
	for i, m := range matches {
		isOver := m != nil && over[i] && !m.Shadow && !m.Limit.Unlimited
		switch {
		case m != nil && m.Quota:
			quotas++
			if isOver {
				full++
			}
		case isOver:
			return true
		}
	}
	return quotas > 0 && full == quotas
}

// level finds the nodes of one level.
type level struct {
	exact map[string]*Descriptor
	wild  []*Descriptor // in file order
	byKey map[string][]*Descriptor
}

func newLevel(nodes []*Descriptor) *level {
	l := &level{exact: make(map[string]*Descriptor, len(nodes)), byKey: map[string][]*Descriptor{}}
	for _, n := range nodes {
		l.byKey[n.Key] = append(l.byKey[n.Key], n)
		l.exact[n.composite()] = n
		if n.wildcard() {
			l.wild = append(l.wild, n)
		}
	}
	return l
}

// find returns the node an entry meets: the one of its very text, the first whose
// pattern matches, the one of its key alone.
func (l *level) find(e Entry) *Descriptor {
	text := e.Key + "_" + e.Value
	if n := l.exact[text]; n != nil {
		return n
	}
	for _, n := range l.wild {
		if matches(n.composite(), text) {
			return n
		}
	}
	return l.exact[e.Key]
}

// matches reports whether a pattern, in which * is any run of characters, matches all
// of s.
func matches(pattern, s string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return pattern == s
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		i := strings.Index(s, piece)
		if i < 0 {
			return false
		}
		s = s[i+len(piece):]
	}
	return true
}

// shared reports whether all values that match count as one.
func (d *Descriptor) shared() bool { return d.ShareThreshold && strings.Contains(d.Value, "*") }

// metric is the node's part of a metric's name.
func (d *Descriptor) metric(e Entry) string {
	if d.ValueToMetric && !d.shared() && e.Value != "" {
		return e.Key + "_" + e.Value
	}
	return d.composite()
}

func metricOf(domain string, entries []Entry) string {
	var b strings.Builder
	b.WriteString(domain)
	for _, e := range entries {
		b.WriteString("." + e.Key)
		if e.Value != "" {
			b.WriteString("_" + e.Value)
		}
	}
	return b.String()
}

// fixed reports whether all requests that meet the node have one value, or count as
// one: then the value is no part of the identity.
func (d *Descriptor) fixed() bool {
	return d.shared() || d.Value != "" && !strings.Contains(d.Value, "*")
}
