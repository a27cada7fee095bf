package envoyconfig

import (
	"slices"

	"github.com/tallygate/tallygate/rules"
)

// replaces makes the rules of limits that name others supersede those. Within one
// descriptor that means nothing, since rules of other keys do not match it: it is
// [DropReplaced] that looks at the descriptors of a request together.
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

// DropReplaced takes from the rules that each descriptor of a request matched (see
// [rules.Domain.Match]) those that a rule of another descriptor replaces. It changes
// matched in place.
//
// A rule replaces those it supersedes that ask for other keys ([AttrPath]): the others
// are alternatives of one descriptor, and each descriptor has its own. It does so even
// if it is replaced itself. A shadow rule replaces shadow rules only.
func DropReplaced(matched [][]*rules.Compiled) {
	type by struct{ shadow, enforced bool }
	replaced := map[string]map[string]by{} // id → path of who replaces it → in which mode
	for _, list := range matched {
		for _, c := range list {
			for _, id := range c.Rule().Supersedes {
				if replaced[id] == nil {
					replaced[id] = map[string]by{}
				}
				path := c.Rule().Match[AttrPath]
				b := replaced[id][path]
				replaced[id][path] = by{b.shadow || c.Shadow(), b.enforced || !c.Shadow()}
			}
		}
	}
	if len(replaced) == 0 {
		return
	}
	for i, list := range matched {
		matched[i] = slices.DeleteFunc(list, func(c *rules.Compiled) bool {
			for path, b := range replaced[c.ID()] {
				if path != c.Rule().Match[AttrPath] && (b.enforced || b.shadow && c.Shadow()) {
					return true
				}
			}
			return false
		})
	}
}
