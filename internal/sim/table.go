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
	for _, row := range figures() {
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
}

func figures() []figure {
	return []figure{
		{"scenario", func(r *Result) string { return r.Scenario }},
		{"seed", func(r *Result) string { return strconv.FormatUint(r.Seed, 10) }},
		{"pods", func(r *Result) string { return strconv.Itoa(r.Pods) }},
		{"seconds", func(r *Result) string { return decimals(r.DurationS, 1) }},
		{"checks", func(r *Result) string { return whole(r.Checks) }},
		{"allowed", func(r *Result) string { return whole(r.Allowed) }},
		{"denied", func(r *Result) string { return whole(r.Denied) }},
		{"unanswered", func(r *Result) string { return whole(r.Unanswered) }},
		{"store calls a second", func(r *Result) string { return decimals(r.StoreCallsPerS, 1) }},
		{"that checks wait for", func(r *Result) string { return decimals(r.AskCallsPerS, 1) }},
		{"for the next lease", func(r *Result) string { return decimals(r.TopUpCallsPerS, 1) }},
		{"that give back or tell", func(r *Result) string { return decimals(r.BackCallsPerS, 1) }},
		{"calls per check %", func(r *Result) string { return decimals(r.CallsPerChkPct, 2) }},
		{"calls of a pod in a second, max", func(r *Result) string { return whole(r.PodCallsMaxPerS) }},
		{"calls in flight of a pod and set, max", func(r *Result) string { return whole(r.SetCallsOpenMax) }},
		{"served, of an exact limiter %", func(r *Result) string { return decimals(r.ServedOfExactPct, 2) }},
		{"answered without the store", func(r *Result) string { return whole(r.FailOpen) }},
		{"by a fallback", func(r *Result) string { return whole(r.Fallback) }},
		{"refused by closed rules", func(r *Result) string { return whole(r.FailClosed) }},
		{"breakers opened", func(r *Result) string { return whole(r.BreakerOpenings) }},
		{"tokens admitted by fallbacks", func(r *Result) string { return whole(r.FallbackAdmitted) }},
		{"told to the store", func(r *Result) string { return whole(r.Told) }},
		{"that it could take", func(r *Result) string { return whole(r.Charged) }},
		{"most in an outage, of its bound %", func(r *Result) string { return decimals(r.OutageMaxPct, 2) }},
		{"tokens above the envelope", func(r *Result) string { return whole(r.AboveEnvelope) }},
		{"above 2 burst + 2 rate × d, by fallbacks", func(r *Result) string { return whole(r.AboveFallback) }},
		{"above 3 burst + 3 rate × d, in all", func(r *Result) string { return whole(r.AboveSpan) }},
		{"above 3 burst + 2 rate × d", func(r *Result) string { return whole(r.AboveTogether) }},
		{"admitted by closed rules in vain", func(r *Result) string { return whole(r.AboveClosed) }},
		{"tokens stranded at the end", func(r *Result) string { return whole(r.Stranded) }},
		{"lease hit %", func(r *Result) string { return decimals(r.LeaseHitPct, 2) }},
		{"async hit %", func(r *Result) string { return decimals(r.EstimatePct, 2) }},
		{"deny cache %", func(r *Result) string { return decimals(r.DenyCachePct, 2) }},
		{"pre-limit %", func(r *Result) string { return decimals(r.PreLimitPct, 2) }},
		{"wait for the store ms, mean", func(r *Result) string { return decimals(r.WaitMeanMS, 2) }},
		{"p99", func(r *Result) string { return decimals(r.WaitP99MS, 1) }},
		{"max", func(r *Result) string { return decimals(r.WaitMaxMS, 2) }},
		{"decisions a real second", func(r *Result) string { return decimals(r.DecisionsPerRealS, 0) }},
		{"trace hash", func(r *Result) string { return r.TraceHash }},
	}
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func decimals(x float64, n int) string { return strconv.FormatFloat(x, 'f', n, 64) }
