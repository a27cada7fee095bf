package store

import (
	"slices"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/limit"
)

// memoryCall is one Take on its way: lock, decide all, then write. It is taken
// from a pool, so that a call allocates nothing.
type memoryCall struct {
	store *MemoryStore
	now   int64
	steps [MaxOps]memoryStep
	cells [MaxOps]memoryCell
	used  int // cells in use
	// overflowing says that the shared buckets are locked.
	overflowing bool
	// droppable is c.mayDrop, made once: a closure a call would be allocated.
	droppable func(*memoryBucket) bool
}

// memoryStep is what the call knows of one op.
type memoryStep struct {
	hash    uint64
	cell    *memoryCell
	answer  algorithm.Answer
	receipt Receipt
	queue   int64
	// reserved is what an op on a reservation met.
	reserved Reserved
}

// memoryCell is one bucket of the call, in the two ways it may end: kept, if an
// enforced op denies, and spent. Both hold what is done unconditionally.
type memoryCell struct {
	bucket       *memoryBucket // nil: not stored, and this call does not store it
	kept, spent  algorithm.State
	keptChanged  bool // kept must be stored
	spentChanged bool // spent must be stored
	reserved     bool // made for this call, to be deleted unless it is stored
	shared       bool // the rule's overflow bucket
	reset        bool // to be deleted
}

func newMemoryCall(m *MemoryStore) *memoryCall {
	c := &memoryCall{store: m}
	c.droppable = c.mayDrop
	return c
}

// take is the request path of the store. The clock is read under the locks:
// a time read before would be older than what another call has counted since,
// and the same stretch would refill twice.
func (c *memoryCall) take(dst []Grant, ops []Op) ([]Grant, error) {
	mask, err := c.name(ops)
	if err != nil {
		return dst, err
	}
	c.store.buckets.Lock(mask)
	defer c.unlock(mask)
	c.now = c.store.now().UnixMilli()

	denied := false
	for i := range ops {
		step, op := &c.steps[i], &ops[i]
		if err := c.find(step, op); err != nil {
			c.release(ops)
			return dst, err
		}
		if op.How == Reserve && step.cell.spent.Limit.Algorithm == limit.SlidingLog {
			c.release(ops)
			return dst, errLogReserves // by newer numbers than the caller's
		}
		c.decide(step, op)
		if (op.How == Take || op.How == Reserve) && !op.Shadow && !step.answer.OK {
			denied = true
		}
	}
	if !denied {
		for i := range ops {
			c.queue(&c.steps[i], &ops[i])
		}
	}
	for i := range ops {
		dst = append(dst, Grant{})
		c.write(&dst[len(dst)-1], &c.steps[i], &ops[i], denied)
	}
	c.release(ops)
	return dst, nil
}

// name hashes the ops' names and returns the mask of their shards.
func (c *memoryCall) name(ops []Op) (mask uint64, err error) {
	for i := range ops {
		h := c.store.buckets.Hash(keyed.Name(ops[i].Bucket))
		c.steps[i] = memoryStep{hash: h}
		mask |= c.store.buckets.Bit(h)
		for j := range i {
			if c.steps[j].hash == h && ops[j].Bucket == ops[i].Bucket {
				return 0, errNamedTwice
			}
		}
	}
	return mask, nil
}

// find gives the step its cell: the stored state, or that of an untouched
// bucket, brought to now and to the op's numbers.
func (c *memoryCall) find(step *memoryStep, op *Op) error {
	bucket := c.store.buckets.GetLocked(step.hash, keyed.Name(op.Bucket))
	reserved, shared := false, false
	if bucket == nil && (op.How == Take || op.How == Add || op.How == Peek || op.How == Reserve || op.How == Commit) {
		var err error
		if bucket, reserved, shared, err = c.reserve(step, op); err != nil {
			return err
		}
	}
	if shared && c.join(step, bucket) {
		return nil
	}
	cell := &c.cells[c.used]
	c.used++
	*cell = memoryCell{bucket: bucket, reserved: reserved, shared: shared}
	step.cell = cell
	switch {
	case bucket != nil && bucket.limit != nil:
		bucket.load(&cell.kept)
		cell.keptChanged = advance(&cell.kept, op, c.now) && !looks(op)
	case op.NotFresh:
		cell.kept = algorithm.Holding(op.Limit, c.now, op.Cost)
	default:
		cell.kept = algorithm.Fresh(op.Limit, c.now)
	}
	cell.spent = cell.kept
	return nil
}

// advance brings a stored state to now, and to the op's numbers when these apply.
func advance(s *algorithm.State, op *Op, now int64) (dirty bool) {
	if op.NextWindow {
		return s.AdvanceNextWindow(op.Limit, now)
	}
	return s.Advance(op.Limit, now)
}

// reserve makes a place for a bucket that is not stored: its own, or, in a table
// full of what may not be dropped, the rule's shared one. Whoever only looks
// needs none while there is room.
func (c *memoryCall) reserve(step *memoryStep, op *Op) (b *memoryBucket, reserved, shared bool, err error) {
	m := c.store
	if looks(op) && !m.buckets.Full() {
		return nil, false, false, nil
	}
	if b = m.buckets.InsertLocked(step.hash, keyed.Name(op.Bucket), c.droppable); b != nil {
		return b, true, false, nil
	}
	if !c.overflowing {
		m.overflow.Lock(m.overflow.All())
		c.overflowing = true
	}
	m.overflowed.Add(1)
	name := keyed.Name{Domain: op.Bucket.Domain, Rule: op.Bucket.Rule}
	h := m.overflow.Hash(name)
	if b = m.overflow.GetLocked(h, name); b != nil {
		return b, false, true, nil
	}
	if b = m.overflow.InsertLocked(h, name, c.droppable); b == nil {
		return nil, false, false, errOverflowFull
	}
	return b, true, true, nil
}

// join gives the step the cell of an earlier op of the call, if that shares the
// bucket.
func (c *memoryCall) join(step *memoryStep, b *memoryBucket) bool {
	for i := range c.used {
		if cell := &c.cells[i]; cell.bucket == b {
			// Both ends are about to append: they must not do so in one array.
			cell.spent.Log.Entries = slices.Clone(cell.spent.Log.Entries)
			step.cell = cell
			return true
		}
	}
	return false
}

// mayDrop reports whether a bucket may make room: never one of this call, whose
// first spend is still to be written.
func (c *memoryCall) mayDrop(b *memoryBucket) bool {
	for i := range c.used {
		if c.cells[i].bucket == b {
			return false
		}
	}
	return b.limit != nil && b.full(c.now)
}

// looks reports whether the op leaves its bucket as it is.
func looks(op *Op) bool { return op.How == Peek || op.How == Take && op.Cost == 0 }

// release deletes the places that were reserved and not used.
func (c *memoryCall) release(ops []Op) {
	m := c.store
	for i := range ops {
		cell := c.steps[i].cell
		if cell == nil || !cell.reserved || cell.bucket.limit != nil {
			continue
		}
		name := keyed.Name(ops[i].Bucket)
		if cell.shared {
			name.Key = ""
			m.overflow.DeleteLocked(m.overflow.Hash(name), name)
		} else {
			m.buckets.DeleteLocked(c.steps[i].hash, name)
		}
		cell.reserved = false
	}
}

// unlock ends the call. References to callers' numbers and logs must not stay
// in the pool.
func (c *memoryCall) unlock(mask uint64) {
	c.store.buckets.Unlock(mask)
	if c.overflowing {
		c.store.overflow.Unlock(c.store.overflow.All())
		c.overflowing = false
	}
	clear(c.cells[:c.used])
	c.used = 0
}
