package rules

// Snapshot is the rules and overrides a pod works from. It is immutable: a
// change is another Snapshot.
type Snapshot struct {
	revision int64
	rules    []*Compiled
	places   map[string]int // in rules, by id
	domains  map[string]*Domain
}

// Domain is the rules of one domain.
type Domain struct {
	name  string
	rules []*Compiled
	*filing
}

// filing is how the rules of a domain are found. It names them by their places in it,
// so that snapshots with the same rules share it, whatever their numbers.
type filing struct {
	ordinals []int          // in the snapshot, by place
	places   map[string]int // by id
	index    []indexed
	// rest are the rules without an exact condition: asked each time.
	rest []int
}

// Revision returns the number that grows with every change; 0 before the first.
func (s *Snapshot) Revision() int64 { return s.revision }

// Domain returns the domain of that name, nil if no rule is in it. "" is the
// default domain.
func (s *Snapshot) Domain(name string) *Domain {
	if name == "" {
		name = DefaultDomain
	}
	return s.domains[name]
}

// Rules returns all rules in the order of the source. The slice is the
// snapshot's own.
func (s *Snapshot) Rules() []*Compiled { return s.rules }

// Rule returns the rule of that id, nil if there is none.
func (s *Snapshot) Rule(id string) *Compiled { return ruleAt(s.rules, s.places, id) }

// Name returns the domain's name.
func (d *Domain) Name() string { return d.name }

// Rule returns the domain's rule of that id, nil if it has none.
func (d *Domain) Rule(id string) *Compiled { return ruleAt(d.rules, d.places, id) }

func ruleAt(rules []*Compiled, places map[string]int, id string) *Compiled {
	if place, ok := places[id]; ok {
		return rules[place]
	}
	return nil
}

// Rules returns the domain's rules in the order of the source. The slice is the
// snapshot's own.
func (d *Domain) Rules() []*Compiled { return d.rules }

// newSnapshot files compiled rules by id and domain.
func newSnapshot(revision int64, rules []*Compiled) *Snapshot {
	s := &Snapshot{
		revision: revision,
		rules:    rules,
		places:   make(map[string]int, len(rules)),
		domains:  map[string]*Domain{},
	}
	for i, c := range rules {
		s.places[c.rule.ID] = i
		d := s.domains[c.Domain()]
		if d == nil {
			d = &Domain{name: c.Domain(), filing: &filing{places: map[string]int{}}}
			s.domains[d.name] = d
		}
		d.places[c.rule.ID] = len(d.rules)
		d.rules = append(d.rules, c)
		d.ordinals = append(d.ordinals, i)
	}
	for _, d := range s.domains {
		d.buildIndex()
	}
	return s
}

// with returns a snapshot of the same rules with other numbers.
func (s *Snapshot) with(revision int64, rules []*Compiled) *Snapshot {
	out := &Snapshot{revision: revision, rules: rules, places: s.places, domains: make(map[string]*Domain, len(s.domains))}
	for name, d := range s.domains {
		next := &Domain{name: name, filing: d.filing, rules: make([]*Compiled, len(d.rules))}
		for i, ordinal := range d.ordinals {
			next.rules[i] = rules[ordinal]
		}
		out.domains[name] = next
	}
	return out
}
