package rules

import (
	"cmp"
	"slices"

	"github.com/tallygate/tallygate/limit"
)

// target is one rule or candidate in the making, and what was in force before.
type target struct {
	*run
	now, before *Compiled
	// whole says that now has nothing but what is put; else it is a copy of before,
	// of which what is put or dropped is another.
	whole bool
	// edited and editedGone say that the tables are ours.
	edited, editedGone bool
	// touched are the keys that were put or dropped.
	touched []string
	// patterns are those there will be, by text; nil while none was put or dropped.
	patterns map[string]*keyPattern
}

// thaw returns a target that changes a part of a rule in force.
func (c *Compiler) thaw(last *Compiled) *target {
	now := new(Compiled)
	*now = *last
	return &target{run: &c.run, now: now, before: last}
}

func (t *target) keys() *table {
	if !t.edited {
		t.now.keys, t.edited = t.now.keys.edit(), true
	}
	return t.now.keys
}

func (t *target) gone() *table {
	if !t.editedGone {
		t.now.gone, t.editedGone = t.now.gone.edit(), true
	}
	return t.now.gone
}

// editPatterns returns the patterns to change.
func (t *target) editPatterns() map[string]*keyPattern {
	if t.patterns == nil {
		t.patterns = map[string]*keyPattern{}
		if t.now.patterns != nil {
			for _, p := range t.now.patterns.list {
				t.patterns[p.text()] = p
			}
		}
	}
	return t.patterns
}

func (t *target) patternCount() int {
	if t.patterns == nil && t.now.patterns == nil {
		return 0
	}
	return len(t.editPatterns())
}

// at returns the numbers that a spot has by an override; nil for none.
func (t *target) at(s *spot) *entry {
	if !s.pattern() {
		return t.now.keys.get(s.text)
	}
	if t.patternCount() > 0 {
		if p := t.patterns[s.text]; p != nil {
			return p.entry
		}
	}
	return nil
}

// has reports whether an override of this spot is there already.
func (t *target) has(s *spot) bool { return t.at(s) != nil }

// pattern returns a pattern that was in force; nil for none.
func (c *Compiled) pattern(s *spot) *keyPattern {
	if c == nil || c.patterns == nil {
		return nil
	}
	p := newKeyPattern(*s, nil)
	if i, found := slices.BinarySearchFunc(c.patterns.list, p, byRankOf); found {
		return c.patterns.list[i]
	}
	return nil
}

// kept returns the override that was in force for a spot, and its limit, if it still
// fits the rule.
func (t *target) kept(s *spot) (*written, *limit.Limit) {
	var last *entry
	switch p := t.before.pattern(s); {
	case t.before == nil:
	case !s.pattern():
		last = t.before.keys.get(s.text)
	case p != nil:
		last = p.entry
	}
	if last == nil || last.override == nil {
		return nil, nil
	}
	lim, problems := t.now.fits(last.override.asWritten())
	if len(problems) > 0 {
		return nil, nil
	}
	return last.override, lim
}

// put gives a spot the numbers of an override, and those that follow when they end.
func (t *target) put(s *spot, o *written, lim *limit.Limit) {
	if !s.pattern() {
		var last *limit.Limit
		var slowMS int64
		if t.before != nil {
			was := t.before.entry(s.text)
			last, slowMS = t.before.limitAt(was, t.nowMS), t.before.slowUntil(s.text, t.nowMS)
		}
		t.now.keys = t.keys().put(s.text, t.entryOf(o, lim, last, slowMS))
		t.touched = append(t.touched, s.text)
		return
	}
	var e *entry
	if was := t.before.pattern(s); was != nil {
		e = t.entryOf(o, lim, t.before.limitAt(was.entry, t.nowMS), was.entry.slowUntil(t.nowMS))
	} else {
		e = t.entryOf(o, lim, nil, 0)
		e.slowMS = max(e.slowMS, t.slowerThanSome(e.lim))
	}
	t.editPatterns()[s.text] = newKeyPattern(*s, e)
}

// slowerThanSome returns until when keys that got a new pattern's numbers may have
// expired as full under those they had before, of the rule or another pattern.
func (t *target) slowerThanSome(next *limit.Limit) int64 {
	if t.before == nil {
		return 0
	}
	until := max(t.before.base.slowUntil(t.nowMS), slowUntil(t.before.base.lim, next, t.nowMS))
	if t.before.patterns != nil {
		for _, p := range t.before.patterns.list {
			until = max(until, p.entry.slowUntil(t.nowMS), slowUntil(t.before.limitAt(p.entry, t.nowMS), next, t.nowMS))
		}
	}
	return until
}

// entryOf makes the entry of an override whose limit is next, after what its keys had.
func (t *target) entryOf(o *written, next, last *limit.Limit, slowMS int64) *entry {
	base := &t.now.base
	e := &entry{override: o, maxCost: cmp.Or(o.maxCost, base.maxCost), endMS: never}
	if !o.expiresAt.IsZero() {
		e.endMS = o.expiresAt.UnixMilli()
	}
	ended := *base.lim
	if e.endMS <= t.nowMS {
		e.lim, e.slowMS = t.followShared(last, slowMS, &ended, 2*t.revision+1)
		if last == nil {
			e.slowMS = slowUntil(next, e.lim, e.endMS)
		}
		// An ended override does not come back with the clock, and goes on taking the
		// place of its key.
		e.endMS, e.maxCost = never, base.maxCost
		return e
	}
	e.lim, e.slowMS = t.followShared(last, slowMS, next, 2*t.revision)
	if e.endMS == never {
		return e
	}
	if e.lim.Same(&ended) {
		e.endLim = e.lim
	} else {
		e.endSlowMS = slowUntil(e.lim, &ended, e.endMS)
	}
	return e
}

// drop takes a spot's override away.
func (t *target) drop(s *spot) {
	if s.pattern() {
		if t.patternCount() > 0 {
			delete(t.patterns, s.text)
		}
		return
	}
	t.now.keys = t.keys().drop(s.text)
	t.touched = append(t.touched, s.text)
}

// settle gives what is not overridden, or not any more, its numbers.
func (t *target) settle() {
	if t.patterns != nil {
		list := make([]*keyPattern, 0, len(t.patterns))
		for _, p := range t.patterns {
			list = append(list, p)
		}
		t.now.patterns = newPatterns(list)
	}
	if t.before == nil {
		return
	}
	if t.whole || t.patterns != nil {
		t.removePatterns()
	}
	switch {
	case t.whole:
		t.before.keys.all(func(key string, _ *entry) { t.derive(key) })
		t.before.gone.all(func(key string, _ *entry) { t.derive(key) })
	case t.patterns != nil:
		t.before.gone.all(func(key string, _ *entry) { t.derive(key) })
		fallthrough
	default:
		for _, key := range t.touched {
			t.derive(key)
		}
	}
	if t.now.gone.len() > MaxTombstones {
		t.forget()
	}
}

// removePatterns sees to the keys of patterns that are gone: whatever they fall to,
// the rule or a pattern that comes after, gets the new revision, so that none of
// their buckets keeps the pattern's numbers. That costs a conversion of each bucket
// that has the rule's numbers, once.
func (t *target) removePatterns() {
	t.now.slow = slices.DeleteFunc(slices.Clone(t.before.slow), func(s slowPattern) bool { return s.untilMS <= t.nowMS })
	if t.before.patterns == nil {
		return
	}
	var first *keyPattern
	for _, was := range t.before.patterns.list {
		if t.now.pattern(&was.spot) != nil {
			continue
		}
		if first == nil {
			first = was
			t.renew(first)
		}
		last := t.before.limitAt(was.entry, t.nowMS)
		until := max(was.entry.slowUntil(t.nowMS), slowUntil(last, t.now.base.lim, t.nowMS))
		if t.now.patterns != nil {
			for _, p := range t.now.patterns.list {
				until = max(until, slowUntil(last, p.entry.lim, t.nowMS))
			}
		}
		if until > t.nowMS {
			t.now.slow = append(t.now.slow, slowPattern{was, until})
		}
	}
	if len(t.now.slow) > MaxPatterns { // changed faster than a minute allows: all are meant then
		for _, s := range t.now.slow {
			t.now.base.slowMS = max(t.now.base.slowMS, s.untilMS)
		}
		t.now.slow = nil
	}
}

// renew gives the rule's own numbers, and those of the patterns after one that is
// gone, the new revision. The patterns are not shared any more.
func (t *target) renew(after *keyPattern) {
	t.now.base.lim = t.again(t.now.base.lim)
	if t.now.patterns == nil {
		return
	}
	for _, p := range t.now.patterns.list {
		if after == nil || byRankOf(p, after) > 0 {
			p.entry = t.renewed(p.entry)
		}
	}
}

// renewed returns an entry of the same numbers with the new revision.
func (t *target) renewed(was *entry) *entry {
	e := *was
	e.lim = t.again(was.lim)
	if was.endLim == was.lim {
		e.endLim = e.lim
	}
	return &e
}

// derive gives a key without override the numbers of what is around it, with a
// revision above what it had: else its bucket would keep its numbers.
func (t *target) derive(key string) {
	if t.now.keys.get(key) != nil {
		if t.now.gone.get(key) != nil {
			t.now.gone = t.gone().drop(key)
		}
		return
	}
	was, around := t.before.entry(key), t.now.under(key)
	e := *around
	e.override = nil
	numbers := *around.lim
	e.lim, e.slowMS = t.follow(t.before.limitAt(was, t.nowMS), t.before.slowUntil(key, t.nowMS), &numbers, 2*t.revision)
	if e.lim.Revision <= around.lim.Revision {
		e.lim = around.lim // remembered for slowMS alone, if at all
	}
	if around.endLim == around.lim {
		e.endLim = e.lim
	}
	if e.lim.Revision > around.lim.Revision || e.slowMS > max(around.slowMS, t.nowMS) {
		t.now.gone = t.gone().put(key, &e)
	} else if t.now.gone.get(key) != nil {
		t.now.gone = t.gone().drop(key)
	}
}

// forget drops the memory of removed overrides by giving what is around them a
// revision above all of them. It costs one conversion of every bucket.
func (t *target) forget() {
	if t.now.patterns != nil {
		t.now.patterns = newPatterns(slices.Clone(t.now.patterns.list)) // its own to change
	}
	t.renew(nil)
	t.now.gone, t.editedGone = nil, true
}

// reset gives a key the same numbers with the new revision, which those that this
// compilation made have already.
func (t *target) reset(key string) {
	e := t.now.entry(key)
	if e.lim.Revision >= 2*t.revision {
		return
	}
	e = t.renewed(e)
	if t.now.keys.get(key) != nil {
		t.now.keys = t.keys().put(key, e)
		return
	}
	e.override = nil
	t.now.gone = t.gone().put(key, e)
	if t.now.gone.len() > MaxTombstones {
		t.forget()
	}
}

// publish ends the making.
func (t *target) publish() *Compiled {
	t.now.endAs(t.revision)
	if t.edited {
		t.now.keys.freeze()
	}
	if t.editedGone {
		t.now.gone.freeze()
	}
	return t.now
}

// endAs sets the numbers of overrides that end while a snapshot is in force. They
// are above every revision that a pod may have sent for their keys, also one that
// knows no more than this snapshot and calls all numbers new in it.
func (c *Compiled) endAs(revision int64) {
	c.ended = nil
	if c.base.lim == nil || c.keys == nil && c.gone == nil && c.patterns == nil {
		return
	}
	ended := *c.base.lim
	ended.Revision = 2*revision + 1
	c.ended = &ended
}
