package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// tally is the state of the history's buckets between two calls: levels in 1/P
// tokens, as of a time. Before the first call the time is 0 and all are full.
type tally struct {
	nowMS int64
	level [buckets]int64
}

// model is the buckets as a sequential object. The store's time is part of each
// answer, so that a step has one outcome: the answer is right or it is not.
func model() porcupine.Model {
	limits := numbers()
	return porcupine.Model{
		Init: func() any {
			var t tally
			for i, l := range limits {
				t.level[i] = l.Burst * l.PeriodMS
			}
			return t
		},
		Step: func(state, input, output any) (bool, any) {
			next, ok := step(state.(tally), input.(call), output.(answer))
			return ok, next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %+v", input, output) },
	}
}

// step runs one call at the time it was answered, and reports whether that
// answer was right.
func step(t tally, c call, told answer) (tally, bool) {
	if told.nowMS < t.nowMS {
		return t, false // the store's clock does not step back
	}
	limits := numbers()
	spend := true
	for i, l := range limits {
		full := l.Burst * l.PeriodMS
		elapsed := min(told.nowMS-t.nowMS, full/l.Rate+1)
		t.level[i] = min(full, t.level[i]+elapsed*l.Rate)
		if c[i] > 0 {
			there := t.level[i] >= c[i]*l.PeriodMS
			if there != told.ok[i] {
				return t, false
			}
			spend = spend && there
		}
	}
	t.nowMS = told.nowMS
	for i, l := range limits {
		if spend {
			t.level[i] -= c[i] * l.PeriodMS
		}
		if c[i] > 0 && t.level[i]/l.PeriodMS != told.left[i] {
			return t, false
		}
	}
	return t, true
}
