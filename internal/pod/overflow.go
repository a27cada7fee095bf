package pod

import "sync"

// maxOverflows bounds the rules with an overflow fallback of their own; all later
// ones share the one of the name "".
const maxOverflows = 1000

// overflow is the fallbacks of keys that the table has no room for: one a rule, so
// that a flood of invented keys finds no fresh one.
type overflow struct {
	mu    sync.Mutex // guards rules; taken after the buckets' locks
	rules map[string]*fallback
}

// of returns the fallback of a rule, full if it is new. The caller holds mu.
func (o *overflow) of(rule string, n share, now int64) *fallback {
	if f := o.rules[rule]; f != nil {
		return f
	}
	if len(o.rules) >= maxOverflows {
		rule = ""
		if f := o.rules[rule]; f != nil {
			return f
		}
	}
	f := n.full(now)
	o.rules[rule] = f
	return f
}

// answered takes in that the store answered for a key of that rule which the table
// has no room for.
func (o *overflow) answered(now int64, rule string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.rules[rule]
	if f == nil {
		f = o.rules[""]
	}
	if f != nil {
		f.answered(now)
	}
}

func (o *overflow) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rules)
}
