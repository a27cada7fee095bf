package pod

import (
	"context"

	"github.com/tallygate/tallygate/store"
)

// InProcess stands where a Runner does in front of a store in this process. Such a
// store is as near as a lease would be, so it is asked about everything.
type InProcess struct {
	store store.Appender
	table holder // the same store; nil if it does not tell
}

// holder is a store that says what it has.
type holder interface{ Holds(b store.Bucket) bool }

// NewInProcess returns what stands in front of s.
func NewInProcess(s store.Appender) *InProcess {
	table, _ := s.(holder)
	return &InProcess{store: s, table: table}
}

// AppendTake asks the store, whatever the terms.
func (p *InProcess) AppendTake(ctx context.Context, dst []store.Grant, ops []store.Op, _ []Terms) ([]store.Grant, error) {
	return p.store.AppendTake(ctx, dst, ops)
}

// AppendAway counts nothing: this store does not answer only where the caller has
// left, or where its table is full of rules.
func (p *InProcess) AppendAway(dst []store.Grant, _ []store.Op, _ []Terms, rules []Instead, _ error) (grants []store.Grant, closed int) {
	for i := range rules {
		if rules[i].Milli == 0 && !rules[i].Pass {
			return dst, i
		}
	}
	return dst, NoneClosed
}

// GiveBack asks the store.
func (p *InProcess) GiveBack(ctx context.Context, dst []store.Grant, ops []store.Op, terms []Terms) ([]store.Grant, error) {
	return p.AppendTake(ctx, dst, ops, terms)
}

// Knows reports whether the store has a bucket. One that does not tell knows all, so
// that nobody is taken for a newcomer.
func (p *InProcess) Knows(name store.Bucket, _ Terms) bool {
	return p.table == nil || p.table.Holds(name)
}

// Meet does nothing: taking makes the store's entry.
func (*InProcess) Meet(*store.Op, Terms) {}
