package bench_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var figures = flag.Bool("figures", false, "measure for long enough to print figures")

// measure runs f so often that it takes about this long.
func span() time.Duration {
	if *figures {
		return 500 * time.Millisecond
	}
	return time.Millisecond
}

// rounds is how often ours and the yardsticks take turns.
func rounds() int {
	if *figures {
		return 5
	}
	return 1
}

// sample is one thing to measure: once does it n times and returns what one
// cost, in the sample's unit.
type sample struct {
	name string
	once func(n int) float64
}

// nsPerOp measures f alone.
func nsPerOp(f func(n int)) func(n int) float64 {
	return func(n int) float64 {
		start := time.Now()
		f(n)
		return float64(time.Since(start).Nanoseconds()) / float64(n)
	}
}

// interleave measures all samples in turn and returns their medians.
func interleave(samples ...sample) []float64 {
	sizes := make([]int, len(samples))
	for i, s := range samples {
		n := 16
		for start := time.Now(); ; start = time.Now() {
			s.once(n)
			if took := time.Since(start); took > span()/10 {
				sizes[i] = max(1, int(float64(n)*float64(span())/float64(took)))
				break
			}
			n *= 2
		}
	}
	all := make([][]float64, len(samples))
	for range rounds() {
		for i, s := range samples {
			all[i] = append(all[i], s.once(sizes[i]))
		}
	}
	medians := make([]float64, len(samples))
	for i := range all {
		slices.Sort(all[i])
		medians[i] = all[i][len(all[i])/2]
	}
	return medians
}

// row prints a figure beside its yardstick and goal. With -figures a goal that
// is missed by more than the noise of a shared machine is said so, but fails
// nothing: a timed assertion would fail for what others run here.
func row(t *testing.T, what string, ours, yardstick float64, unit, goal string, met bool) {
	t.Helper()
	verdict := "met"
	if !met {
		verdict = "MISSED"
	}
	if !*figures {
		verdict = "not measured"
	}
	t.Logf("%-52s %10.1f %-9s yardstick %10.1f   ratio %5.2f   goal %-7s %s", what, ours, unit, yardstick, ours/yardstick, goal, verdict)
}

// allocates prints how often f allocates. Packages pin it in tests of their own.
func allocates(t *testing.T, what string, goal float64, f func()) {
	t.Helper()
	got, verdict := testing.AllocsPerRun(1000, f), "met"
	if got > goal {
		verdict = "MISSED"
	}
	t.Logf("%-52s %10.1f allocs   goal <= %.0f %s", what, got, goal, verdict)
}

func atMost(goal float64) string  { return fmt.Sprintf("<= %.2f", goal) }
func atLeast(goal float64) string { return fmt.Sprintf(">= %.2f", goal) }
