package envoyconfig

import (
	"slices"
)

// replaces makes the rules of limits that name others supersede those. Within one
// descriptor that means nothing, since rules of other keys do not match it: it is
// [rules.SupersedeAcross] that looks at the descriptors of a request together, and at
// rules of one [AttrPath] as alternatives of one of them.
func (im *importer) replaces(d *Domain) {
	named := map[string][]*Descriptor{}
	var replacing []*Descriptor
	each(d.Descriptors, func(n *Descriptor) {
		if im.ids[n] == "" {
			return
		}
		if n.Limit.Name != "" && !n.Limit.Unlimited { // an unlimited one cannot be replaced
			named[n.Limit.Name] = append(named[n.Limit.Name], n)
		}
		if len(n.Limit.Replaces) > 0 {
			replacing = append(replacing, n)
		}
	})
	edges := map[string][]string{} // by path
	for _, n := range replacing {
		var all, enforced []string
		for _, name := range n.Limit.Replaces {
			for _, target := range named[name] {
				if why := im.cannotReplace(edges, n, target); why != "" {
					im.lifted[n] = append(im.lifted[n], why)
					continue
				}
				id := im.ids[target]
				if slices.Contains(all, id) {
					continue
				}
				im.links++
				edges[pathOf(n)] = append(edges[pathOf(n)], pathOf(target))
				all = append(all, id)
				if !im.shadow(target) {
					enforced = append(enforced, id)
				}
			}
		}
		im.hide(n, all, enforced)
	}
}

// cannotReplace says why one limit's rule does not supersede another's here. Rules of
// one key sequence supersede each other by value, so that a circle of sequences may be
// one of rules, of which one would supersede nothing at all.
func (im *importer) cannotReplace(edges map[string][]string, n, target *Descriptor) string {
	what := quote(target.Limit.Name) + " at " + target.At.String()
	if pathOf(n) == pathOf(target) {
		return what + " has the same keys: limits of the same keys replace each other by value only, not over two descriptors of a request"
	}
	seen := map[string]bool{}
	var reaches func(from string) bool
	reaches = func(from string) bool {
		if from == pathOf(n) {
			return true
		}
		if seen[from] {
			return false
		}
		seen[from] = true
		return slices.ContainsFunc(edges[from], reaches)
	}
	if reaches(pathOf(target)) {
		return what + " is not replaced: a limit of its keys replaces one of these keys in turn, and here no two may supersede each other"
	}
	return ""
}

// pathOf is the value of AttrPath that a node's rule asks for.
func pathOf(n *Descriptor) string { return Path(keysOf(n.path())) }
