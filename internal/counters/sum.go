package counters

// Sum is the sum over all stripes. Routes and Rules are by number, as far as some were
// counted.
type Sum struct {
	Figures
	Routes [][2]int64
	Rules  []Rule
}

// Sum returns what was counted. It holds each stripe for a moment, so that what was
// counted meanwhile may be in it or not.
func (c *Counters) Sum() Sum {
	s := Sum{Figures: Figures{Errors: map[string]int64{}}}
	for _, t := range c.stripes {
		t.mu.Lock()
		s.add(t)
		t.mu.Unlock()
	}
	return s
}

func (s *Sum) add(t *Stripe) {
	for i := range s.Checks {
		addAll(s.Checks[i][:], t.Checks[i][:])
	}
	s.Timeout += t.Timeout
	s.Unavailable += t.Unavailable
	for code, n := range t.Errors {
		s.Errors[code] += n
	}
	s.Routes = grow(s.Routes, len(t.routes))
	for i := range t.routes {
		addAll(s.Routes[i][:], t.routes[i][:])
	}
	s.Rules = grow(s.Rules, len(t.rules))
	for i, r := range t.rules {
		if r != nil {
			s.Rules[i].add(r)
		}
	}
}

// RuleOf returns the sum of the rule of that number, and of one that has counted
// nothing zeros.
func (s *Sum) RuleOf(number int) *Rule {
	if number < len(s.Rules) {
		return &s.Rules[number]
	}
	return new(Rule)
}

func (r *Rule) add(o *Rule) {
	for i := range r.Entries {
		addAll(r.Entries[i][:], o.Entries[i][:])
	}
	r.Spent += o.Spent
	r.Denied += o.Denied
	r.FailOpen += o.FailOpen
	r.FailClosed += o.FailClosed
	r.NewKeys += o.NewKeys
	addAll(r.Reservations[:], o.Reservations[:])
	for i := range r.Trials {
		addAll(r.Trials[i][:], o.Trials[i][:])
	}
}

func addAll(dst, src []int64) {
	for i := range src {
		dst[i] += src[i]
	}
}
