package sim

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// WriteTable writes results for people: a row a figure, a column a simulation,
// then a table of their rules.
func WriteTable(out io.Writer, results []*Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	away := failed(results)
	for _, row := range figures() {
		if row.away && !away {
			continue
		}
		_, _ = fmt.Fprint(w, row.name, "\t")
		for _, r := range results {
			_, _ = fmt.Fprint(w, row.of(r), "\t")
		}
		_, _ = fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out)
	_, _ = fmt.Fprintln(w, "scenario\trule\tbuckets\toffered\tadmitted\tserved %\tabove\tstore ops/s\tout % mean\tmax\theld % mean\tmax\t")
	for _, r := range results {
		for _, x := range r.Rules {
			if x.Buckets == 0 {
				continue
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%.2f\t%d\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", r.Scenario, x.Rule,
				x.Buckets, x.Offered, x.Admitted, x.ServedPct, x.AboveEnvelope, x.OpsPerS, x.OutMeanPct, x.OutMaxPct, x.HeldMeanPct, x.HeldMaxPct)
		}
	}
	return w.Flush()
}

// figure is a row of the table.
type figure struct {
	name string
	of   func(*Result) string
	away bool // left out where the store has answered all
}

// failed reports whether any check found no answer of the store.
func failed(results []*Result) bool {
	for _, r := range results {
		if r.FailOpen+r.FailClosed+r.BreakerOpenings > 0 {
			return true
		}
	}
	return false
}

func figures() []figure {
	return []figure{
		{"scenario", func(r *Result) string { return r.Scenario }, false},
		{"seed", func(r *Result) string { return strconv.FormatUint(r.Seed, 10) }, false},
		{"pods", func(r *Result) string { return strconv.Itoa(r.Pods) }, false},
		{"seconds", func(r *Result) string { return decimals(r.DurationS, 1) }, false},
		{"checks", func(r *Result) string { return whole(r.Checks) }, false},
		{"allowed", func(r *Result) string { return whole(r.Allowed) }, false},
		{"denied", func(r *Result) string { return whole(r.Denied) }, false},
		{"unanswered", func(r *Result) string { return whole(r.Unanswered) }, false},
		{"store calls a second", func(r *Result) string { return decimals(r.StoreCallsPerS, 1) }, false},
		{"that checks wait for", func(r *Result) string { return decimals(r.AskCallsPerS, 1) }, false},
		{"for the next lease", func(r *Result) string { return decimals(r.TopUpCallsPerS, 1) }, false},
		{"that give back or tell", func(r *Result) string { return decimals(r.BackCallsPerS, 1) }, false},
		{"calls per check %", func(r *Result) string { return decimals(r.CallsPerChkPct, 2) }, false},
		{"calls of a pod in a second, max", func(r *Result) string { return whole(r.PodCallsMaxPerS) }, false},
		{"calls in flight of a pod and set, max", func(r *Result) string { return whole(r.SetCallsOpenMax) }, false},
		{"served, of an exact limiter %", func(r *Result) string { return decimals(r.ServedOfExactPct, 2) }, false},
		{"answered without the store", func(r *Result) string { return whole(r.FailOpen) }, true},
		{"by a fallback", func(r *Result) string { return whole(r.Fallback) }, true},
		{"refused by closed rules", func(r *Result) string { return whole(r.FailClosed) }, true},
		{"breakers opened", func(r *Result) string { return whole(r.BreakerOpenings) }, true},
		{"tokens admitted by fallbacks", func(r *Result) string { return whole(r.FallbackAdmitted) }, true},
		{"told to the store", func(r *Result) string { return whole(r.Told) }, true},
		{"that it could take", func(r *Result) string { return whole(r.Charged) }, true},
		{"most in an outage, of its bound %", func(r *Result) string { return decimals(r.OutageMaxPct, 2) }, true},
		{"most over all, of its bound %", func(r *Result) string { return decimals(r.SpanMaxPct, 2) }, true},
		{"tokens above the envelope", func(r *Result) string { return whole(r.AboveEnvelope) }, false},
		{"above 2 burst + 2 rate × d, by fallbacks", func(r *Result) string { return whole(r.AboveFallback) }, true},
		{"above 3 burst + 3 rate × d, in all", func(r *Result) string { return whole(r.AboveSpan) }, true},
		{"above 3 burst + 2 rate × d", func(r *Result) string { return whole(r.AboveTogether) }, true},
		{"admitted by closed rules in vain", func(r *Result) string { return whole(r.AboveClosed) }, true},
		{"tokens stranded at the end", func(r *Result) string { return whole(r.Stranded) }, false},
		{"lease hit %", func(r *Result) string { return decimals(r.LeaseHitPct, 2) }, false},
		{"async hit %", func(r *Result) string { return decimals(r.EstimatePct, 2) }, false},
		{"deny cache %", func(r *Result) string { return decimals(r.DenyCachePct, 2) }, false},
		{"pre-limit %", func(r *Result) string { return decimals(r.PreLimitPct, 2) }, false},
		{"wait for the store ms, mean", func(r *Result) string { return decimals(r.WaitMeanMS, 2) }, false},
		{"p99", func(r *Result) string { return decimals(r.WaitP99MS, 1) }, false},
		{"max", func(r *Result) string { return decimals(r.WaitMaxMS, 2) }, false},
		{"decisions a real second", func(r *Result) string { return decimals(r.DecisionsPerRealS, 0) }, false},
		{"trace hash", func(r *Result) string { return r.TraceHash }, false},
	}
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func decimals(x float64, n int) string { return strconv.FormatFloat(x, 'f', n, 64) }
