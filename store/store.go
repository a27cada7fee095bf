// Package store is the contract between the limiter and whatever holds the
// counts, and its in-process implementation, [MemoryStore].
//
// A [Store] gets all buckets of one request as [Op]s and decides them in one
// atomic step: every enforced op gets its cost, or none does. Time is the
// store's, never the caller's. The same operations on any store give the same
// answers; the suite in package storetest says what that means.
package store

import (
	"context"

	"github.com/tallygate/tallygate/limit"
)

// A Store holds buckets. Implementations are safe for concurrent use.
type Store interface {
	// Take decides and spends for all ops in one atomic step and returns one
	// grant an op, in order. A denial is a grant whose OK is false, not an error.
	// An error is a *StoreError: the question could not be answered. Take
	// returns within the store's own deadline or ctx's, whichever ends first,
	// and keeps no reference to ops.
	Take(ctx context.Context, ops []Op) ([]Grant, error)
}

// Appender is what a Store offers that can answer without allocating.
type Appender interface {
	// AppendTake is Take with the grants appended to dst.
	AppendTake(ctx context.Context, dst []Grant, ops []Op) ([]Grant, error)
}

// MaxOps is the largest number of ops in one Take. It bounds the time a store
// is busy with one request.
const MaxOps = 32

// Bucket names one counter: one rule and one key. Key is the raw identity value;
// a store that writes names where others can read them hashes it first.
type Bucket struct {
	Domain string
	Rule   string
	Key    string
}

// How says what an Op does to its bucket.
type How uint8

// What an op can do. Their numbers are part of the store's wire format.
const (
	// Take spends Cost if it is there; all enforced takes of a call or none.
	// Cost 0 looks and changes nothing.
	Take How = 0
	// Add spends Cost whether it is there or not: a token bucket and a log stop
	// at 0 left, a window's count may pass its capacity.
	Add How = 1
	// Back gives Cost tokens back, never above full.
	Back How = 2
	// Peek answers as Take would and changes nothing.
	Peek How = 3
	// Stamp converts an existing bucket to the op's numbers and spends nothing.
	Stamp How = 4
	// Undo gives back what a take spent, by its Receipt; with Op.Reservation, what a
	// Reserve set aside, and forgets the reservation.
	Undo How = 5
	// Reset makes the bucket full again by forgetting it.
	Reset How = 6
	// Reserve is a Take under a name, Op.Reservation, for Op.TTLMS: what is not
	// committed or canceled by then is given back. Repeated while it is open it spends
	// nothing and is OK; once it is settled, it is denied. No bucket of a sliding_log
	// can be reserved in.
	Reserve How = 7
	// Commit settles a reservation: Cost is what the request really cost, and the
	// difference is added as by Add or given back, to a window only while it is the one
	// it was reserved in. It is always OK; what it met is Grant.Reserved.
	Commit How = 8
	// Cancel gives a reservation back. It is always OK.
	Cancel How = 9
)

// Op is one bucket of a request and what to do with it. The zero How is Take.
type Op struct {
	Bucket Bucket
	// Limit is the numbers to count by, with their revision. A store that has
	// newer numbers for this bucket decides by those and says so in the Grant.
	Limit *limit.Limit
	How   How
	// Shadow ops never deny the others and never keep them from spending; they
	// spend when they would allow and no enforced op denies.
	Shadow bool
	// NotFresh says that a missing bucket is not a full one: it starts with one
	// Cost (sent as fresh = 0).
	NotFresh bool
	// NextWindow says that newer numbers of a window, sliding or fixed, wait for the
	// end of the bucket's current one: until then the stored ones decide.
	NextWindow bool
	// Closed says that the op's rule fails closed: a store that may have forgotten
	// spends of this bucket answers with an error instead.
	Closed bool
	// Replicas is how many replicas must have the spend before the answer counts, 0
	// to MaxReplicas. A store without replicas ignores it.
	Replicas int

	// Cost is what must be there, in tokens: 0 to limit.MaxCost.
	Cost int64
	// Queue is what further waiting checks ask beyond Cost, in tokens: granted as
	// far as the level goes.
	Queue int64
	// Want is the lease asked for beyond Cost and Queue, in tokens; Pods (at
	// least 1) is the number of pods that may hold one, MaxCost the rule's
	// largest cost, which leases must leave room for.
	Want, Pods, MaxCost int64
	// Reports tell what became of earlier leases; they count even when the op is
	// denied. At most MaxReports.
	Reports []Report
	// Receipt is what Undo undoes.
	Receipt Receipt
	// Reservation names what Reserve, Commit and Cancel are about. TTLMS, 1 s to 1 h,
	// is how long a Reserve holds, and for how long at least a Commit or Cancel is
	// remembered, so that it can be repeated.
	Reservation ReservationID
	TTLMS       int64
}

// MaxReplicas is the largest number of replicas an op can wait for.
const MaxReplicas = 5

// MaxReports is the largest number of reports on one op: leases live in at most
// two generations.
const MaxReports = 2

// Report says what became of leases of one generation since the last report, in
// tokens: Spent were used, Back are returned unspent.
type Report struct {
	Generation  int64
	Spent, Back int64
}

// Receipt is what a take spent and where, so that it can be undone. The zero
// Receipt undoes nothing.
type Receipt struct {
	// ID is the log entry's number, the window's start in ms, or 0 for a bucket.
	ID int64
	// Cost is what was spent, in tokens.
	Cost int64
}

// Grant is the answer to one Op.
type Grant struct {
	// OK says that this op's cost was there (Take, Peek) or that the change was
	// made. A Take's cost is spent only when every enforced op of the call is OK.
	OK bool
	// Never says that no waiting helps: the cost is above what a full bucket
	// holds. RetryMS is then 0.
	Never bool
	// Skipped says that the store was not asked, since another op of the call
	// had already denied it in another slot. The numbers below are then 0.
	Skipped bool

	// Queue is what of Op.Queue was granted, Lease what of Op.Want; the lease is
	// of generation Generation and may be spent for LeaseMS from before the call
	// was sent.
	Queue, Lease, Generation, LeaseMS int64

	// Remaining is what is left after this op, in whole tokens, never negative.
	Remaining int64
	// RetryMS is how long to wait until this cost would pass; 0 when it passed.
	RetryMS int64
	// ResetMS is the time to full, to the window's end, or until the log is empty.
	ResetMS int64
	// Out is the tokens out on leases, as far as the store knows.
	Out int64
	// NowMS is the store's clock at the decision, in ms of the UTC epoch.
	NowMS int64

	// Source says who answered; a store leaves it at FromStore.
	Source Source

	// Limit is the numbers that decided: Op.Limit unless the bucket has newer.
	Limit *limit.Limit
	// Receipt undoes what this op spent; zero if it spent nothing.
	Receipt Receipt
	// Reserved says what an op on a reservation met.
	Reserved Reserved
}

// Source says who answered an op: the store, or a pod by itself.
type Source uint8

const (
	// FromStore is the answer of the store, now.
	FromStore Source = iota
	// FromLease is paid for by tokens the pod had leased.
	FromLease
	// FromDenyCache is a denial the pod remembers.
	FromDenyCache
	// FromPreLimit is a denial of the pod's own bucket in front of the store.
	FromPreLimit
	// FromAsync was admitted on the pod's estimate, to be counted after.
	FromAsync
	// FromLocal is the count of this pod alone.
	FromLocal
	// FromFallback is what this pod counts with while the store does not answer.
	FromFallback
	// FromAllowlist passes uncounted while the store does not answer, since the rule
	// lists the key.
	FromAllowlist
)
