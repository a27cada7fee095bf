package wire

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Merge returns the set that changes make of one, in time that grows with both. Of
// a row that changed more than once the last one counts. It shares no slice with set,
// whose order is that of rulestore.Set.
func Merge(set rulestore.Set, c rulestore.Changes) rulestore.Set {
	out := rulestore.Set{
		Revision:  c.Revision,
		Now:       c.Now,
		Rules:     merge(set.Rules, c.Rules, byID, ruleGone),
		Overrides: merge(set.Overrides, c.Overrides, byName, overrideGone),
	}
	out.Hash = rulestore.Digest(out.Rules, out.Overrides)
	return out
}

func byID(a, b *rulestore.Rule) int { return cmp.Compare(a.ID, b.ID) }

func byName(a, b *rulestore.Override) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID))
}

func merge[T any](list, changed []T, compare func(a, b *T) int, gone func(*T) bool) []T {
	out := make([]T, 0, len(list)+len(changed))
	m := newMerger(changed, compare, gone, func(row *T) { out = append(out, *row) })
	for i := range list {
		m.next(&list[i])
	}
	m.end()
	return out
}

// merger puts changed rows among those that there were, which come in their order.
type merger[T any] struct {
	changed []T // in order, each once
	compare func(a, b *T) int
	gone    func(*T) bool
	out     func(*T)
}

// newMerger takes changes in the order in which they were made: of a row that changed
// more than once the last one counts.
func newMerger[T any](changed []T, compare func(a, b *T) int, gone func(*T) bool, out func(*T)) *merger[T] {
	sorted := slices.Clone(changed)
	slices.SortStableFunc(sorted, func(a, b T) int { return compare(&a, &b) })
	last := sorted[:0]
	for i := range sorted {
		if i+1 == len(sorted) || compare(&sorted[i], &sorted[i+1]) != 0 {
			last = append(last, sorted[i])
		}
	}
	return &merger[T]{changed: last, compare: compare, gone: gone, out: out}
}

// next takes a row that there was.
func (m *merger[T]) next(row *T) {
	for len(m.changed) > 0 {
		order := m.compare(&m.changed[0], row)
		if order > 0 {
			break
		}
		m.first()
		if order == 0 {
			return
		}
	}
	m.out(row)
}

// first gives the first changed row, unless it is gone.
func (m *merger[T]) first() {
	row := &m.changed[0]
	m.changed = m.changed[1:]
	if !m.gone(row) {
		m.out(row)
	}
}

// end takes it that there are no more rows.
func (m *merger[T]) end() {
	for len(m.changed) > 0 {
		m.first()
	}
}

// Merger is [Merge] of rows that come one by one, in the order of rulestore.Set, and go
// on to who asked.
type Merger struct {
	rules     *merger[rulestore.Rule]
	overrides *merger[rulestore.Override]
}

// NewMerger returns a merger that gives the rows as they are after changes.
func NewMerger(c rulestore.Changes, rule func(*rulestore.Rule), override func(*rulestore.Override)) *Merger {
	return &Merger{
		rules:     newMerger(c.Rules, byID, ruleGone, rule),
		overrides: newMerger(c.Overrides, byName, overrideGone, override),
	}
}

// Rule takes a rule that there was.
func (m *Merger) Rule(r *rulestore.Rule) { m.rules.next(r) }

// Override takes an override that there was. There are no more rules.
func (m *Merger) Override(o *rulestore.Override) {
	m.rules.end()
	m.overrides.next(o)
}

// End takes it that there are no more rows.
func (m *Merger) End() {
	m.rules.end()
	m.overrides.end()
}

// MergeEach is [Merge] that hands over row by row.
func MergeEach(set rulestore.Set, c rulestore.Changes, rule func(*rulestore.Rule), override func(*rulestore.Override)) {
	m := NewMerger(c, rule, override)
	for i := range set.Rules {
		m.Rule(&set.Rules[i])
	}
	for i := range set.Overrides {
		m.Override(&set.Overrides[i])
	}
	m.End()
}

func ruleGone(r *rulestore.Rule) bool { return r.Deleted }

func overrideGone(o *rulestore.Override) bool { return o.Deleted }

// Unnameable reports whether a row's name is no text that JSON can carry: such a
// row, written with SQL, is left out of the feed, or no set would have its digest.
func Unnameable(names ...string) bool {
	return slices.ContainsFunc(names, func(s string) bool { return !utf8.ValidString(s) })
}
