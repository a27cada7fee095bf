package redisstore

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/store"
)

// group is the ops of a check that share a tag, and so a slot.
type group struct {
	ops   []store.Op
	index []int // where they stand in the check
	reply reply
}

// sameTag reports whether all ops lie in one slot.
func sameTag(ops []store.Op) bool {
	first := &ops[0].Bucket
	for i := 1; i < len(ops); i++ {
		if b := &ops[i].Bucket; b.Key != first.Key || b.Domain != first.Domain {
			return false
		}
	}
	return true
}

// grouped sorts ops by tag, in the order in which the tags appear.
func grouped(ops []store.Op) []group {
	groups := make([]group, 0, 2)
	for i := range ops {
		b := &ops[i].Bucket
		g := 0
		for g < len(groups) && (groups[g].ops[0].Bucket.Key != b.Key || groups[g].ops[0].Bucket.Domain != b.Domain) {
			g++
		}
		if g == len(groups) {
			groups = append(groups, group{})
		}
		groups[g].ops = append(groups[g].ops, ops[i])
		groups[g].index = append(groups[g].index, i)
	}
	return groups
}

// takeGroups asks slot by slot. The first that denies, or cannot answer, ends
// it; what was spent before is undone after the answer, and ops of groups not
// asked are Skipped.
func (s *Store) takeGroups(ctx context.Context, ops []store.Op, deadline time.Time) ([]store.Grant, error) {
	groups := grouped(ops)
	asked, spends := 0, true
	for asked < len(groups) && spends {
		g := &groups[asked]
		var err error
		if g.reply, err = s.ask(ctx, g.ops, deadline); err != nil {
			s.undo(groups[:asked])
			return nil, err
		}
		spends = g.reply.status == spent
		asked++
	}
	if !spends {
		s.undo(groups[:asked-1])
	}
	grants := make([]store.Grant, len(ops))
	for i := range ops {
		grants[i] = store.Grant{Skipped: true, Limit: ops[i].Limit}
	}
	for i := range groups[:asked] {
		g := &groups[i]
		answers, err := s.answer(g.reply, make([]store.Grant, 0, len(g.ops)), g.ops, spends)
		if err != nil {
			return nil, err
		}
		for j, at := range g.index {
			grants[at] = answers[j]
		}
	}
	return grants, nil
}

// undo sends back the receipts of groups that were spent in vain, and returns the
// leases that came with them: nobody is told of those, and a window would count
// them to its end. What an op did unconditionally stays.
func (s *Store) undo(groups []group) {
	for i := range groups {
		g := &groups[i]
		grants, err := g.reply.grants(nil, g.ops, true)
		if err != nil {
			s.undoer.lose(len(g.ops))
			continue
		}
		undos := make([]store.Op, 0, len(g.ops))
		for j := range grants {
			if op := &g.ops[j]; (op.How == store.Take || op.How == store.Reserve) && grants[j].Receipt.Cost > 0 {
				undos = append(undos, undoOf(op, &grants[j]))
			}
		}
		if len(undos) > 0 {
			s.undoer.start(s, undos)
		}
	}
}

// undoOf is the op that takes back all that a take was granted.
func undoOf(op *store.Op, g *store.Grant) store.Op {
	undo := store.Op{Bucket: op.Bucket, Limit: op.Limit, How: store.Undo, NextWindow: op.NextWindow, Receipt: g.Receipt, Reservation: op.Reservation}
	if g.Lease > 0 {
		undo.Reports = []store.Report{{Generation: g.Generation, Back: g.Lease}}
	}
	return undo
}
