package wire

import (
	"cmp"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// maxPending bounds the changed rows that a Mirror keeps aside before it works them
// in: together they cost less than one by one.
const maxPending = 10_000

// Mirror is a copy of the whole set that follows changes. Its zero value is the
// empty set at revision 0.
type Mirror struct {
	set     rulestore.Set
	pending rulestore.Changes
}

// Replace takes a whole set, of which it keeps a copy.
func (m *Mirror) Replace(set rulestore.Set) {
	set.Rules, set.Overrides = slices.Clone(set.Rules), slices.Clone(set.Overrides)
	m.set, m.pending = set, rulestore.Changes{Revision: set.Revision}
}

// Apply takes what changed since Revision. Changes that lead back are none.
func (m *Mirror) Apply(c rulestore.Changes) {
	if c.Revision <= m.Revision() {
		return
	}
	m.pending.Revision = c.Revision
	m.pending.Rules = append(m.pending.Rules, c.Rules...)
	m.pending.Overrides = append(m.pending.Overrides, c.Overrides...)
	if len(m.pending.Rules)+len(m.pending.Overrides) > maxPending {
		m.work()
	}
}

// Revision is that of the copy.
func (m *Mirror) Revision() int64 { return max(m.set.Revision, m.pending.Revision) }

// Set returns the copy, with its hash. Its slices are not to be changed.
func (m *Mirror) Set() rulestore.Set {
	m.work()
	return m.set
}

func (m *Mirror) work() {
	if m.Revision() != m.set.Revision {
		m.set = Merge(m.set, m.pending)
	}
	m.pending = rulestore.Changes{Revision: m.set.Revision}
}

// Merge returns the set that changes make of one, in time that grows with both. Of
// a row that changed more than once the last one counts. It shares no slice with set,
// whose order is that of rulestore.Set.
func Merge(set rulestore.Set, c rulestore.Changes) rulestore.Set {
	out := rulestore.Set{
		Revision:  c.Revision,
		Now:       c.Now,
		Rules:     merge(set.Rules, c.Rules, byID, func(r *rulestore.Rule) bool { return r.Deleted }),
		Overrides: merge(set.Overrides, c.Overrides, byName, func(o *rulestore.Override) bool { return o.Deleted }),
	}
	out.Hash = rulestore.Digest(out.Rules, out.Overrides)
	return out
}

func byID(a, b *rulestore.Rule) int { return cmp.Compare(a.ID, b.ID) }

func byName(a, b *rulestore.Override) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID))
}

func merge[T any](list, changed []T, compare func(a, b *T) int, gone func(*T) bool) []T {
	changed = slices.Clone(changed)
	slices.SortStableFunc(changed, func(a, b T) int { return compare(&a, &b) })
	out := make([]T, 0, len(list)+len(changed))
	at := 0
	for i := range changed {
		row := &changed[i]
		if i+1 < len(changed) && compare(row, &changed[i+1]) == 0 {
			continue // it changed again
		}
		from := at
		for at < len(list) && compare(&list[at], row) < 0 {
			at++
		}
		out = append(out, list[from:at]...)
		if at < len(list) && compare(&list[at], row) == 0 {
			at++
		}
		if !gone(row) {
			out = append(out, *row)
		}
	}
	return append(out, list[at:]...)
}

// Diff returns the changes that lead from one set to another, tombstones among
// them, for who was told everything where it asked for changes.
func Diff(before, after rulestore.Set) rulestore.Changes {
	rules := diff(before.Rules, after.Rules, byID, func(r rulestore.Rule) rulestore.Rule {
		return rulestore.Rule{ID: r.ID, Version: r.Version, Revision: after.Revision, Deleted: true}
	})
	overrides := diff(before.Overrides, after.Overrides, byName, func(o rulestore.Override) rulestore.Override {
		o.Revision, o.Deleted = after.Revision, true
		return o
	})
	return rulestore.Changes{Revision: after.Revision, Now: after.Now, Rules: rules, Overrides: overrides}
}

func diff[T any](before, after []T, compare func(a, b *T) int, tombstone func(T) T) (out []T) {
	at := 0
	for i := range after {
		for at < len(before) && compare(&before[at], &after[i]) < 0 {
			out = append(out, tombstone(before[at]))
			at++
		}
		if at < len(before) && compare(&before[at], &after[i]) == 0 {
			if at++; reflect.DeepEqual(before[at-1], after[i]) {
				continue
			}
		}
		out = append(out, after[i])
	}
	for ; at < len(before); at++ {
		out = append(out, tombstone(before[at]))
	}
	return out
}

// Unnameable reports whether a row's name is no text that JSON can carry: such a
// row, written with SQL, is left out of the feed, or no set would have its digest.
func Unnameable(names ...string) bool {
	return slices.ContainsFunc(names, func(s string) bool { return !utf8.ValidString(s) })
}
