package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// Options say how limits become rules. The zero value counts as their service does.
type Options struct {
	// Algorithm is fixed_window (also for 0), sliding_window or token_bucket.
	Algorithm limit.Algorithm
	// CalendarWindows makes a week and a month those of the calendar in UTC instead of
	// 7 and 30 days.
	CalendarWindows bool
	// QuotaShadow makes limits with quota_mode shadow rules, which never refuse.
	// Without it they refuse alone, as a request's only quota does there.
	QuotaShadow bool
	// Domain is the only domain to import, as the files name it; "" for all.
	Domain string
}

// Imported is a configuration as rules.
type Imported struct {
	// Set holds the rules, in the order of the files. All of them are valid.
	Set rules.Set
	// Notes say what became of each line, in the order of the files; before them, at
	// no place, what is different whatever the files say.
	Notes []Note
	// Nodes is the limit that a rule stands for, by its id. Rules that are not there
	// count nothing: they only keep others from applying.
	Nodes map[string]*Descriptor
}

// maxLinks bounds the ids in all lists of supersedes: they grow with the square of
// the values that hide each other.
const maxLinks = 500_000

// Import turns a configuration into rules. An error means that there is no such
// domain, or that it would take too many rules.
func Import(t *Tree, opts Options) (*Imported, error) {
	if a := opts.Algorithm; a == limit.SlidingLog || a > limit.FixedWindow {
		return nil, fmt.Errorf("algorithm: %s is none of fixed_window, sliding_window, token_bucket", a)
	}
	if opts.Domain != "" && t.byName[opts.Domain] == nil {
		return nil, fmt.Errorf("domain: there is no domain %s in the files", quote(opts.Domain))
	}
	im := importer{
		opts:   opts,
		out:    &Imported{Nodes: map[string]*Descriptor{}},
		namer:  namer{taken: map[string]bool{}},
		ids:    map[*Descriptor]string{},
		at:     map[*Descriptor]int{},
		why:    map[*Descriptor]remark{},
		dead:   map[*Descriptor]*Descriptor{},
		lifted: map[*Descriptor][]string{},
		names:  map[*Domain]string{},

		hidden:   map[*Descriptor]hidden{},
		beside:   map[*Descriptor]string{},
		unhidden: map[*Descriptor]string{},
		reached:  map[*Descriptor]bool{},
	}
	for _, d := range t.Domains {
		if opts.Domain == "" || opts.Domain == d.Name {
			im.domain(d)
		}
	}
	if im.links > maxLinks {
		return nil, fmt.Errorf("values that hide each other would take more than %d entries of supersedes; split the configuration by domain", maxLinks)
	}
	im.notes(t)
	return im.out, nil
}

// remark is what is to be said of a node's limit.
type remark struct {
	verdict Verdict
	text    string
}

type importer struct {
	opts Options
	out  *Imported
	namer

	names map[*Domain]string // names of domains here
	ids   map[*Descriptor]string
	// at is where a node's rule stands in the set.
	at map[*Descriptor]int
	// why is what a node's limit became, where there is more to say than that it is kept.
	why    map[*Descriptor]remark
	dead   map[*Descriptor]*Descriptor
	lifted map[*Descriptor][]string // what a node's replaces could not carry over
	hidden map[*Descriptor]hidden
	// beside is the id of the rule that lifts what a node's own rule cannot, if there
	// is one.
	beside map[*Descriptor]string
	// unhidden says of a node why its values do not keep others' rules from applying.
	unhidden map[*Descriptor]string
	reached  map[*Descriptor]bool
	links    int
}

func (im *importer) domain(d *Domain) {
	im.names[d] = im.namer.domain(d.Name)
	o := orderer{rule: map[*Descriptor]bool{}, dead: im.dead}
	each(d.Descriptors, func(n *Descriptor) {
		if n.Limit != nil {
			o.rule[n] = im.rule(n)
		}
	})
	paths := o.keyPaths(d)
	for _, keys := range paths {
		im.order(d, &o, keys)
		if im.links > maxLinks {
			return
		}
	}
	each(d.Descriptors, func(n *Descriptor) {
		if i, ok := im.at[n]; ok && !im.reached[n] {
			im.drop(n, i)
		}
	})
	im.replaces(d)
	each(d.Descriptors, im.supersede)
	im.tidy()
}

// tidy removes rules that were dropped and ids of rules that turned out not to be
// needed.
func (im *importer) tidy() {
	im.out.Set.Rules = slices.DeleteFunc(im.out.Set.Rules, func(r rules.Rule) bool { return r.ID == "" })
	there := make(map[string]bool, len(im.out.Set.Rules))
	for _, r := range im.out.Set.Rules {
		there[r.ID] = true
	}
	for i := range im.out.Set.Rules {
		r := &im.out.Set.Rules[i]
		r.Supersedes = slices.DeleteFunc(r.Supersedes, func(id string) bool { return !there[id] })
		if n := im.out.Nodes[r.ID]; n != nil {
			im.at[n] = i
		}
	}
}

// rule adds the rule of a node, and says whether there is one.
func (im *importer) rule(n *Descriptor) bool {
	r := rules.Rule{
		ID: im.id(n), Domain: im.names[n.domain], Description: n.At.String() + " " + clip(n.String()),
		Match: conditions(n.path(), keysOf(n.path())), At: rules.Position{Line: n.At.Line, Column: n.At.Column},
	}
	if !n.Limit.Unlimited && (n.ShadowMode || n.QuotaMode && im.opts.QuotaShadow) {
		r.Mode = rules.ModeShadow
	}
	said := remark{verdict: Kept}
	switch l := n.Limit; {
	case l.Unlimited:
		r.Action = rules.ActionAllow
	case l.RequestsPerUnit == 0:
		r.Action = rules.ActionDeny
	default:
		r.Identity = identity(n.path())
		if differs := numbers(&r, l, im.opts); differs != "" {
			said = remark{Differs, differs}
		}
	}
	if slices.Contains(r.Identity, "ip") {
		said.verdict = Differs
		said.text = strings.Trim(said.text+"; an entry called ip counts by address: IPv6 by its first 64 bits, and what is no address is refused", "; ")
	}
	if key := starKey(n.path()); key != "" {
		said = remark{Ignored, "key " + quote(key) + " has a *: rules match keys exactly; this limit is not imported"}
	} else if fault := r.Validate().Faults(); len(fault) > 0 {
		said = remark{Ignored, "not imported: as a rule it is refused: " + fault[0].String()}
	}
	im.why[n] = said
	if said.verdict == Ignored {
		delete(im.taken, r.ID)
		return false
	}
	im.ids[n], im.at[n] = r.ID, len(im.out.Set.Rules)
	im.out.Nodes[r.ID] = n
	im.out.Set.Rules = append(im.out.Set.Rules, r)
	return true
}

// drop takes the rule of a node that no request reaches out of the set.
func (im *importer) drop(n *Descriptor, i int) {
	why := ""
	for _, p := range n.path() {
		if by := im.dead[p]; by != nil {
			why = "can never apply: " + quote(by.composite()) + " at " + by.At.String() + " takes all of " + quote(p.composite())
			break
		}
	}
	im.why[n] = remark{Ignored, why}
	delete(im.out.Nodes, im.ids[n])
	delete(im.ids, n)
	delete(im.at, n)
	im.out.Set.Rules[i].ID = ""
}

// order makes the rules of one key sequence supersede each other, so that of those that
// match only the first applies.
func (im *importer) order(d *Domain, o *orderer, keys []string) {
	list, _ := o.ways(d.level, keys, nil)
	below := make([][]int, len(list)) // by place in list: the ways that it hides
	hides(list, 0, func(first, second int) {
		if list[first].leaf != nil || list[second].leaf != nil {
			below[first] = append(below[first], second)
			im.links++
		}
	}, 0)
	ids := make([][]string, len(list)) // the rules of each way
	for i, w := range list {
		if w.leaf != nil {
			im.reached[w.leaf] = true
			ids[i] = []string{im.ids[w.leaf]}
			if im.shadow(w.leaf) || len(below[i]) > rules.MaxSupersedes || len(w.leaf.Limit.Replaces) > 0 {
				im.beside[w.leaf] = im.id(w.leaf, "lifts")
				ids[i] = append(ids[i], im.beside[w.leaf])
			}
		} else if slices.ContainsFunc(below[i], func(j int) bool { return list[j].leaf != nil }) {
			ids[i] = []string{im.id(w.path[len(w.path)-1], append([]string{"none"}, keys[len(w.path):]...)...)}
		}
	}
	for i, w := range list {
		var all, enforced []string
		for _, j := range below[i] {
			all = append(all, ids[j]...)
			if leaf := list[j].leaf; leaf != nil && !im.shadow(leaf) {
				enforced = append(enforced, ids[j]...)
			} else if leaf != nil {
				enforced = append(enforced, ids[j][1:]...) // what stands beside a shadow is none
			}
		}
		switch {
		case w.leaf != nil:
			im.hide(w.leaf, all, enforced)
		case len(ids[i]) > 0:
			im.stand(w.path, keys, ids[i][0], "no limit here", all)
		}
	}
}

// shadow reports whether the rule of a node is a shadow.
func (im *importer) shadow(n *Descriptor) bool {
	return im.out.Set.Rules[im.at[n]].Mode == rules.ModeShadow
}

// hidden are the rules that a node's supersedes: all of them, and those that are
// enforced.
type hidden struct{ all, enforced []string }

func (im *importer) hide(n *Descriptor, all, enforced []string) {
	h := im.hidden[n]
	im.hidden[n] = hidden{append(h.all, all...), append(h.enforced, enforced...)}
}

// supersede makes the rule of a node supersede those it hides. A shadow rule lifts no
// enforced one, and a list has a bound: a rule that stands beside it does what it
// cannot.
func (im *importer) supersede(n *Descriptor) {
	h := im.hidden[n]
	if im.ids[n] == "" || len(h.all) == 0 {
		return
	}
	r := &im.out.Set.Rules[im.at[n]]
	room := min(len(h.all), rules.MaxSupersedes)
	r.Supersedes = h.all[:room:room]
	rest := h.all[room:]
	if im.shadow(n) {
		rest = h.enforced
	}
	if len(rest) > 0 {
		path := n.path()
		if im.beside[n] == "" {
			im.beside[n] = im.id(n, "lifts")
		}
		im.stand(path, keysOf(path), im.beside[n], "lifts what the rule "+im.ids[n]+" cannot", rest)
	}
}

// stand adds rules that count nothing and keep others from applying, as many as the
// bound of a list asks for.
func (im *importer) stand(path []*Descriptor, keys []string, id, why string, ids []string) {
	n := path[len(path)-1]
	for part := 2; ; part++ {
		these := ids[:min(len(ids), rules.MaxSupersedes)]
		r := rules.Rule{
			ID: id, Domain: im.names[n.domain], Action: rules.ActionAllow, Match: conditions(path, keys), Supersedes: these,
			Description: n.At.String() + " " + clip(n.String()) + ": " + why,
			At:          rules.Position{Line: n.At.Line, Column: n.At.Column},
		}
		if fault := r.Validate().Faults(); len(fault) > 0 {
			im.unhidden[n] = "does not keep limits of other values from applying: as a rule that does so it is refused: " + fault[0].String()
			return
		}
		im.out.Set.Rules = append(im.out.Set.Rules, r)
		if ids = ids[len(these):]; len(ids) == 0 {
			return
		}
		id = im.id(n, append([]string{"none"}, append(slices.Clone(keys[len(path):]), num(part))...)...)
	}
}

// id names the rule of a node.
func (im *importer) id(n *Descriptor, more ...string) string {
	parts := []string{n.domain.Name}
	for _, p := range n.path() {
		parts = append(parts, p.Key)
		if p.Value != "" {
			parts = append(parts, p.Value)
		}
	}
	return im.namer.id(append(parts, more...)...)
}

// conditions is the match of a way with these keys.
func conditions(path []*Descriptor, keys []string) map[string]string {
	out := map[string]string{AttrPath: Path(keys)}
	names := AttributeNames(keys)
	for i, n := range path {
		if n.Value != "" {
			out[names[i]] = n.Value
		}
	}
	return out
}

// identity is what a limit counts by: the values that may differ; where none does, the
// path, which is one value.
func identity(path []*Descriptor) []string {
	var out []string
	for i, name := range AttributeNames(keysOf(path)) {
		if !path[i].fixed() {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return []string{AttrPath}
	}
	return out
}

func keysOf(path []*Descriptor) []string {
	out := make([]string, len(path))
	for i, n := range path {
		out[i] = n.Key
	}
	return out
}

// starKey returns the first key on the way that is a pattern.
func starKey(path []*Descriptor) string {
	for _, n := range path {
		if slices.Contains([]byte(n.Key), '*') {
			return n.Key
		}
	}
	return ""
}
