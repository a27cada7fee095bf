package pod

import "github.com/tallygate/tallygate/store"

// trigger is the spend a background call pays for: the tokens of the check that
// found the leases low. The call must cost something, so it costs that; when it
// is granted, the lease gets its tokens back.
type trigger struct {
	generation, tokens int64
}

// topUp returns a call for the next leases of the buckets whose bits are set, or
// nil if one is under way. Whoever finds the leases used up waits for it.
func (p *Pod) topUp(now int64, ops []store.Op, terms []Terms, low uint32) *Call {
	asked := pick(ops, low)
	name := flightName(asked)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flights[name] != nil {
		return nil
	}
	var hashes [store.MaxOps]uint64
	mask := p.lock(asked, hashes[:])
	defer p.buckets.Unlock(mask)
	c := &Call{Ops: asked, askedNS: now, topUp: true, triggers: make([]trigger, len(asked)), most: make([]int64, len(asked)), terms: pickTerms(terms, low)}
	pods := p.sharers()
	var known [store.MaxOps]*bucket
	for i := range asked {
		// Before anything is taken out: a bucket dropped meanwhile ends it.
		if known[i] = p.entry(now, hashes[i], &asked[i]); known[i] == nil {
			return nil
		}
	}
	for i := range asked {
		op, b := &asked[i], known[i]
		c.most[i] = op.Want
		b.flights++
		b.toppingUp = true
		b.leases.expire(now)
		c.triggers[i] = b.leases.takeTrigger(op.Cost)
		op.Want, op.Pods = min(op.Want, b.want(now)), pods
		if c.terms != nil {
			op.Want = p.room(now, b, op, c.terms[i].Before, op.Want)
		}
		op.Reports = p.report(now, op.Bucket.Rule, b)
	}
	c.flight = &flight{name: name, waiting: []*Waiter{{Ops: asked, background: true}}, sent: 1}
	p.flights[name] = c.flight
	p.figures.topUps.Add(1)
	return c
}

// pickTerms returns the terms whose bits are set; nil of nil.
func pickTerms(terms []Terms, bits uint32) []Terms {
	if terms == nil {
		return nil
	}
	list := make([]Terms, 0, len(terms))
	for i := range terms {
		if bits&(1<<i) != 0 {
			list = append(list, terms[i])
		}
	}
	return list
}

// pick returns the ops whose bits are set.
func pick(ops []store.Op, bits uint32) []store.Op {
	list := make([]store.Op, 0, len(ops))
	for i := range ops {
		if bits&(1<<i) != 0 {
			list = append(list, ops[i])
		}
	}
	return list
}

// takeTrigger takes a spend out of what is to be reported, as far as one lease
// has it: what a report has told already was spent for good.
func (h *held) takeTrigger(cost int64) trigger {
	at := 0
	if h.spent[1] > h.spent[0] {
		at = 1
	}
	n := min(cost, int64(h.spent[at]))
	h.spent[at] -= int32(n)
	return trigger{h.generation[at], n}
}

// settleTrigger ends a background call: the tokens are the lease's again, or were
// spent after all. It reports whether the lease is still there.
func (h *held) settleTrigger(now int64, t trigger, paid bool) (lives bool) {
	for i, generation := range h.generation {
		if generation != t.generation {
			continue
		}
		lives = true
		switch {
		case !paid:
			h.spent[i] += int32(t.tokens)
		case now < h.endsNS[i]:
			h.left[i] += int32(t.tokens)
		default:
			h.back[i] += int32(t.tokens)
		}
	}
	return lives
}
