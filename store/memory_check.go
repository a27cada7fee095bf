package store

import (
	"fmt"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// maxPods bounds Op.Pods, so that products with it stay exact.
const maxPods = 1_000_000

// CheckOps refuses a call that no store may run. Limiters check what users send;
// this is the second side of that boundary: one bad op must not spoil a bucket.
func CheckOps(ops []Op) error {
	if len(ops) > MaxOps {
		return fmt.Errorf("%d ops in a call, at most %d", len(ops), MaxOps)
	}
	for i := range ops {
		if err := checkOp(&ops[i]); err != nil {
			return fmt.Errorf("op %d: %w", i, err)
		}
	}
	return nil
}

func checkOp(op *Op) error {
	switch {
	case op.How > Cancel:
		return fmt.Errorf("how %d is unknown", op.How)
	case op.Cost < 0 || op.Cost > limit.MaxCost:
		return fmt.Errorf("cost %d is out of bounds", op.Cost)
	case op.Queue < 0 || op.Queue > limit.MaxNumber:
		return fmt.Errorf("queue %d is out of bounds", op.Queue)
	case op.Want < 0 || op.Want > limit.MaxNumber:
		return fmt.Errorf("want %d is out of bounds", op.Want)
	case op.Pods < 0 || op.Pods > maxPods:
		return fmt.Errorf("pods %d is out of bounds", op.Pods)
	case op.MaxCost < 0 || op.MaxCost > limit.MaxCost:
		return fmt.Errorf("max_cost %d is out of bounds", op.MaxCost)
	case op.Receipt.Cost < 0 || op.Receipt.Cost > limit.MaxExact:
		return fmt.Errorf("receipt of %d is out of bounds", op.Receipt.Cost)
	case len(op.Reports) > MaxReports:
		return fmt.Errorf("%d reports, at most %d", len(op.Reports), MaxReports)
	}
	if aboutReservation(op) {
		if err := checkReservation(op); err != nil {
			return err
		}
	}
	for _, r := range op.Reports {
		if r.Spent < 0 || r.Spent > limit.MaxNumber || r.Back < 0 || r.Back > limit.MaxNumber {
			return fmt.Errorf("report of %d spent and %d back is out of bounds", r.Spent, r.Back)
		}
	}
	return algorithm.Check(op.Limit)
}
