package envoyconfig

import "slices"

// Lint returns what their service accepts and is most likely not meant, in the order of
// the files.
func Lint(t *Tree) Problems {
	l := linter{}
	for _, name := range t.skipped {
		l.warn(Place{File: name}, "", "is not read: its name ends neither in .yaml nor in .yml", "rename it, or move it away")
	}
	for _, line := range t.lines {
		if line.standing == misplaced {
			l.warn(line.Place, line.field, "nothing reads this key here: "+home(line.field), "move it there or remove it")
		}
	}
	for _, d := range t.Domains {
		l.names(d)
		l.level(d.Descriptors, d.level)
		each(d.Descriptors, func(n *Descriptor) {
			l.node(n)
			l.level(n.Descriptors, n.level)
		})
	}
	order := t.fileOrder()
	slices.SortStableFunc(l.out, func(a, b Problem) int { return comparePlaces(order, a.Place, b.Place) })
	return l.out
}

type linter struct{ out Problems }

func (l *linter) warn(at Place, field, message, fix string) {
	l.out = append(l.out, Problem{Place: at, Field: field, Message: message, Fix: fix})
}

// home says where a key belongs.
func home(key string) string {
	switch b, _ := blocks(key); b {
	case top:
		return "it belongs to the top of the file"
	case top | descriptor:
		return "it belongs to the top of the file or to a descriptor"
	case rateLimit:
		return "it belongs into rate_limit"
	case rateLimit | replacing:
		return "it belongs into rate_limit or an entry of replaces"
	case descriptor, replacing, anywhere:
	}
	return "it belongs to a descriptor, beside key"
}

// node looks at one node by itself.
func (l *linter) node(n *Descriptor) {
	if n.ShareThreshold && !n.shared() {
		l.warn(n.At, "share_threshold", "does nothing without a * in the value", "remove it")
	}
	if n.Limit == nil {
		for _, mode := range []struct {
			name string
			on   bool
		}{{"shadow_mode", n.ShadowMode}, {"quota_mode", n.QuotaMode}} {
			if mode.on {
				l.warn(n.At, mode.name, "does nothing: the descriptor has no rate_limit, and children do not inherit it", "move it to the descriptors with a limit")
			}
		}
		return
	}
	switch lim := n.Limit; {
	case lim.Unlimited && (n.ShadowMode || n.QuotaMode || lim.given):
		l.warn(lim.At, "unlimited", "shadow_mode, quota_mode and requests_per_unit do nothing beside it", "remove them, or unlimited")
	case !lim.Unlimited && !lim.given:
		l.warn(lim.At, "rate_limit", "has no requests_per_unit, so that every request is over the limit", "write requests_per_unit, 0 if this is meant")
	}
	if n.DetailedMetric && n.ValueToMetric {
		l.warn(n.At, "value_to_metric", "does nothing beside detailed_metric", "remove one")
	}
}

// level looks at nodes that stand side by side.
func (l *linter) level(nodes []*Descriptor, at *level) {
	for _, c := range clashes(nodes) {
		l.warn(c.node.At, "key", "an entry of key "+quote(c.key)+" (at "+c.at.String()+") can make the text "+quote(c.node.composite())+
			" too and is then taken for this one", "rename a key, or narrow the value")
	}
	o := orderer{dead: map[*Descriptor]*Descriptor{}}
	for _, same := range at.byKey {
		alive := o.preferred(same)
		// Exact values stand first and never meet each other.
		patterns := slices.IndexFunc(alive, func(n *Descriptor) bool { return !n.exactly() })
		for i, n := range alive {
			if len(n.Descriptors) > 0 || patterns < 0 {
				continue
			}
			for _, later := range alive[max(patterns, i+1):] {
				if len(later.Descriptors) > 0 && meet(n, later) {
					l.warn(n.At, "value", "has no descriptors of its own, so that requests with more entries meet no limit: those of "+
						quote(later.composite())+" at "+later.At.String()+" are not tried", "repeat them here if that is not meant")
					break
				}
			}
		}
	}
	for n, by := range o.dead {
		l.warn(n.At, "value", "never applies: "+quote(by.composite())+" at "+by.At.String()+" comes first and takes all its values",
			"put it before that one, or remove it")
	}
}

// names looks at what replaces what in one domain.
func (l *linter) names(d *Domain) {
	named := map[string]*Descriptor{}
	each(d.Descriptors, func(n *Descriptor) {
		if n.Limit == nil || n.Limit.Name == "" {
			return
		}
		if first := named[n.Limit.Name]; first == nil || first.Limit.Unlimited {
			named[n.Limit.Name] = n
		}
	})
	each(d.Descriptors, func(n *Descriptor) {
		if n.Limit == nil {
			return
		}
		for _, name := range n.Limit.Replaces {
			switch target := named[name]; {
			case target == nil:
				l.warn(n.Limit.At, "replaces", "no limit of the domain has the name "+quote(name), "correct the name or remove it")
			case target.Limit.Unlimited:
				l.warn(n.Limit.At, "replaces", quote(name)+" at "+target.At.String()+" is unlimited and cannot be replaced", "remove it")
			case slices.Contains(target.Limit.Replaces, n.Limit.Name) && n.Limit.Name != "":
				l.warn(n.Limit.At, "replaces", quote(name)+" at "+target.At.String()+" replaces this one in turn: together neither is counted", "remove one")
			}
		}
	})
}
