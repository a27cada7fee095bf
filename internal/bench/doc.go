// Package bench prints what Tallygate costs beside yardsticks measured in the
// same run. Ratios hold on a noisy machine, absolute times do not: every figure
// is the median of interleaved rounds, ours and the yardstick's in turn.
//
//	go test ./internal/bench -run TestFigures -figures -v
//
// Without -figures each measurement runs for a moment, so that it cannot rot.
package bench
