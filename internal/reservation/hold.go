package reservation

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Counting says what of how a rule counts a reservation has to know.
type Counting uint8

// The ways to count.
const (
	// Shared is in the store, however a check would be answered.
	Shared Counting = iota
	// Alone is on each pod by itself.
	Alone
	// Report never denies, and is counted by the commit.
	Report
)

// Refused says why something cannot be reserved.
type Refused struct {
	// Code and Field are those of the limiter's error, Op is the place of the op
	// concerned, none below 0.
	Code, Field, Message string
	Op                   int
}

// maxName is the longest name a caller may have for a reservation, in bytes.
const maxName = 256

// Begin returns the token of a reservation that its caller knows by a name, or by none
// but the token's, and that holds for ttl.
func Begin(name string, ttl time.Duration) (t Token, no *Refused) {
	switch least, most := store.MinReservationTTL, store.MaxReservationTTL; {
	case len(name) > maxName:
		return t, &Refused{"too_large", "/id", fmt.Sprintf("an id of %d bytes is longer than %d", len(name), maxName), -1}
	case ttl < least || ttl > most:
		return t, &Refused{"bad_request", "/ttl_ms", fmt.Sprintf("a reservation holds for %d to %d ms, not %d", least.Milliseconds(), most.Milliseconds(), ttl.Milliseconds()), -1}
	case name == "":
		name = rand.Text()
	}
	return Token{ID: Name(name), TTLMS: ttl.Milliseconds()}, nil
}

// Hold makes the ops of a check reserve under t's name, counted as said, or says which
// cannot. What is not enforced and cannot is only looked at.
func (t *Token) Hold(ops []store.Op, counting func(op int) Counting) *Refused {
	whole := *t
	for i := range ops {
		op := &ops[i]
		op.Want = 0
		log, c := op.Limit.Algorithm == limit.SlidingLog, counting(i)
		switch {
		case c == Report, op.Shadow && (log || c == Alone):
			op.How, op.Shadow = store.Peek, true // shown, and never in the way
		case log:
			return &Refused{"not_reservable", "", "the rule counts admissions one by one (sliding_log), of which none can be given back in part later; use token_bucket, sliding_window or fixed_window", i}
		case c == Alone:
			return &Refused{"not_reservable", "", "the rule counts on each pod alone, and another pod may have to settle it; use counting lease or exact", i}
		case op.Cost == 0:
			return &Refused{"invalid_cost", "", "cost 0 reserves nothing; estimate 1 or more", i}
		default:
			op.How, op.TTLMS = store.Reserve, t.TTLMS
			op.Reservation = In(t.ID, op.Bucket.Domain, op.Bucket.Rule, op.Bucket.Key)
		}
		whole.add(op, Held)
	}
	if !whole.fits() {
		return &Refused{"too_large", "", errTooLong.Error(), -1}
	}
	return nil
}

// Sent reports whether a call of a store that failed may have run.
func Sent(err error) bool {
	e, ok := errors.AsType[*store.StoreError](err)
	return !ok || e.Sent
}

// Took writes what the ops of an allowed check have set aside into t. degraded says
// that the pod answered in the store's place, and told that the call surely did not run:
// then what its fallback admitted it tells the store without the reservation's name.
func (t *Token) Took(ops []store.Op, grants []store.Grant, counting func(op int) Counting, degraded, told bool) {
	for i := range ops {
		op, g, kind := &ops[i], &grants[i], Held
		switch {
		case op.How == store.Peek && counting(i) == Report:
			kind = Reported
		case !g.OK || op.How != store.Reserve: // not enforced, and not spent
			continue
		case degraded && (g.Source == store.FromLease || g.Source == store.FromAsync || g.Source == store.FromFallback && told):
			kind = Told
		}
		t.add(op, kind)
	}
}

func (t *Token) add(op *store.Op, kind Kind) {
	t.Entries = append(t.Entries, Entry{Rule: op.Bucket.Rule, Key: op.Bucket.Key, Cost: op.Cost, Kind: kind})
}
