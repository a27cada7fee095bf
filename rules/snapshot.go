package rules

// Snapshot is the rules and overrides a pod works from. It is immutable: a
// change is another Snapshot.
type Snapshot struct {
	revision int64
	rules    []*Compiled
	byID     map[string]*Compiled
	domains  map[string]*Domain
}

// Domain is the rules of one domain.
type Domain struct {
	name  string
	rules []*Compiled
	byID  map[string]*Compiled

	index []indexed
	// rest are the rules without an exact condition: asked each time.
	rest []*Compiled
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
func (s *Snapshot) Rule(id string) *Compiled { return s.byID[id] }

// Name returns the domain's name.
func (d *Domain) Name() string { return d.name }

// Rule returns the domain's rule of that id, nil if it has none.
func (d *Domain) Rule(id string) *Compiled { return d.byID[id] }

// Rules returns the domain's rules in the order of the source. The slice is the
// snapshot's own.
func (d *Domain) Rules() []*Compiled { return d.rules }

// snapshot files compiled rules by id and domain.
func newSnapshot(revision int64, rules []*Compiled) *Snapshot {
	s := &Snapshot{
		revision: revision,
		rules:    rules,
		byID:     make(map[string]*Compiled, len(rules)),
		domains:  map[string]*Domain{},
	}
	for _, c := range rules {
		s.byID[c.rule.ID] = c
		d := s.domains[c.Domain()]
		if d == nil {
			d = &Domain{name: c.Domain(), byID: map[string]*Compiled{}}
			s.domains[d.name] = d
		}
		d.rules = append(d.rules, c)
		d.byID[c.rule.ID] = c
	}
	for _, d := range s.domains {
		d.buildIndex()
	}
	return s
}
