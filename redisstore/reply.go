package redisstore

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// status is what a call of the script came to.
type status byte

const (
	denied status = iota
	spent
	noWindow // no calendar window fits the server's clock
)

// errReply says that an answer is not one of our script's.
var errReply = errors.New("the answer is not of the expected form")

// reply is the script's answer to one call: now, and a record an op.
type reply struct {
	status  status
	nowMS   int64
	records string
}

func parseReply(s string) (reply, error) {
	r := reader{s: s}
	a := reply{status: status(r.uint(1)), nowMS: r.uint(6), records: r.s}
	if r.short || a.status > noWindow {
		return reply{}, errReply
	}
	return a, nil
}

// reader reads little-endian numbers off the front of a string.
type reader struct {
	s     string
	short bool
}

func (r *reader) uint(bytes int) int64 {
	if len(r.s) < bytes {
		r.short, r.s = true, ""
		return 0
	}
	var v int64
	for i := bytes - 1; i >= 0; i-- {
		v = v<<8 | int64(r.s[i])
	}
	r.s = r.s[bytes:]
	return v
}

// record is what the script saw of one op before spending (a take, a peek) or
// after (all else), and what it lent.
type record struct {
	ok bool
	// met is what an op on a reservation met.
	met   store.Reserved
	state algorithm.State
	// used, newestMS and freeMS describe a log: what counts, the newest entry's
	// time, and when enough of the oldest have left (0: now).
	used, newestMS, freeMS int64

	queue, lease, generation, leaseMS, out, receipt int64
}

// Kinds of states in a full record.
const (
	kindBucket  = 1
	kindSliding = 3
	kindFixed   = 4
	kindLog     = 5
)

// record reads the next op's record. Numbers of the op itself are not sent: a
// record of another limit makes a new one.
func (r *reader) record(op *store.Op, nowMS int64) (record, error) {
	form := r.uint(1)
	rec := record{ok: form&1 == 1, met: store.Reserved(form >> 3), state: algorithm.State{Limit: op.Limit}}
	switch form & 6 {
	case 0, 4:
		rec.state.Bucket = algorithm.Bucket{Level: r.uint(7), TS: nowMS}
		if form&6 == 4 {
			rec.queue, rec.lease, rec.generation = r.uint(6), r.uint(5), r.uint(6)
			rec.leaseMS, rec.out = r.uint(5), r.uint(5)
		}
	case 2:
		if err := r.view(op, nowMS, &rec); err != nil {
			return record{}, err
		}
	default:
		return record{}, errReply
	}
	if r.short || rec.met > store.ReservedUnknown {
		return record{}, errReply
	}
	rec.state.Bucket.Out0 = rec.out
	return rec, nil
}

func (r *reader) view(op *store.Op, nowMS int64, rec *record) error {
	revision, n1, n2, n3 := r.uint(6), r.uint(6), r.uint(5), r.uint(5)
	kind := r.uint(1)
	a, b, c, d := r.uint(7), r.uint(6), r.uint(6), r.uint(6)
	rec.queue, rec.lease, rec.generation = r.uint(6), r.uint(5), r.uint(6)
	rec.leaseMS, rec.out, rec.receipt = r.uint(5), r.uint(5), r.uint(7)

	var alg limit.Algorithm
	switch kind {
	case kindBucket:
		alg = limit.TokenBucket
		rec.state.Bucket = algorithm.Bucket{Level: a, TS: nowMS}
	case kindSliding:
		alg = limit.SlidingWindow
		rec.state.Window = algorithm.Window{Start: a, End: b, Prev: c, Cur: d}
	case kindFixed:
		alg = limit.FixedWindow
		rec.state.Window = algorithm.Window{Start: a, End: b, Prev: c, Cur: d}
	case kindLog:
		alg = limit.SlidingLog
		rec.used, rec.newestMS, rec.freeMS = a, b, c
	default:
		return errReply
	}
	o1, o2, o3 := numbers(op.Limit)
	if op.Limit.Algorithm == alg && op.Limit.Revision == revision && o1 == n1 && o2 == n2 && o3 == n3 {
		return nil
	}
	l := limitOf(alg, revision, n1, n2, n3)
	switch {
	case l.Align != limit.AlignCalendar:
	case op.Limit.Algorithm == alg && o3 == n3:
		l.Calendar = op.Limit.Calendar
	default: // of a calendar that is not known here, the length it has now
		l.WindowMS = b - a
	}
	rec.state.Limit = l
	if op.NextWindow && revision < op.Limit.Revision {
		rec.state.Next = op.Limit // older numbers decide only where newer ones wait
	}
	return nil
}

// grants appends the answers to ops. spends says that the check's takes were
// spent in the end, here and wherever else it asked.
func (a reply) grants(dst []store.Grant, ops []store.Op, spends bool) ([]store.Grant, error) {
	r := reader{s: a.records}
	for i := range ops {
		rec, err := r.record(&ops[i], a.nowMS)
		if err != nil {
			return dst, fmt.Errorf("op %d: %w", i, err)
		}
		dst = append(dst, rec.grant(&ops[i], a.nowMS, spends))
	}
	if r.s != "" {
		return dst, errReply
	}
	return dst, nil
}

// grant says what the record means for its op.
func (rec *record) grant(op *store.Op, nowMS int64, spends bool) store.Grant {
	g := store.Grant{OK: rec.ok, NowMS: nowMS, Limit: rec.state.Limit, Out: rec.out, Reserved: rec.met}
	asks := op.How == store.Take || op.How == store.Peek || op.How == store.Reserve
	taken := int64(0)
	switch {
	case op.How == store.Take && rec.ok && spends && op.Cost > 0:
		taken = op.Cost + rec.queue
		g.Queue, g.Receipt = rec.queue, store.Receipt{ID: rec.receipt, Cost: taken}
		if rec.lease > 0 {
			g.Lease, g.Generation, g.LeaseMS = rec.lease, rec.generation, rec.leaseMS
		}
	case rec.met == store.ReservedNow && op.How == store.Reserve && spends:
		taken, g.Receipt = op.Cost, store.Receipt{ID: rec.receipt, Cost: op.Cost}
	case op.How == store.Add:
		g.Receipt = store.Receipt{ID: rec.receipt, Cost: rec.queue}
	}
	if g.Limit.Algorithm == limit.SlidingLog {
		rec.fillLog(&g, nowMS, taken)
		g.Never = asks && !rec.ok && op.Cost > g.Limit.Full()
		if asks && !rec.ok && rec.freeMS > 0 {
			g.RetryMS = rec.freeMS - nowMS
		}
		return g
	}
	s := &rec.state
	if asks && !rec.ok {
		a := s.Ask(nowMS, op.Cost)
		g.Never, g.RetryMS = a.Never, a.RetryMS
	}
	rec.blocked(&g)
	if g.Limit.Algorithm == limit.TokenBucket {
		s.Bucket.Level -= (taken + g.Lease) * g.Limit.PeriodMS
		g.Out += g.Lease
	} else {
		s.Window.Cur += taken + g.Lease
	}
	g.Remaining, g.ResetMS = s.Remaining(nowMS), s.ResetMS(nowMS)
	return g
}

// blocked says of a Reserve that its cost is not what is in the way.
func (rec *record) blocked(g *store.Grant) {
	switch {
	case rec.met == store.ReservedSettled && !rec.ok:
		g.Never, g.RetryMS = true, 0
	case rec.met == store.ReservedTooMany && !g.Never:
		g.RetryMS = max(g.RetryMS, rec.leaseMS)
	}
}

// fillLog adds what only the script can know of a log: its entries stay there.
func (rec *record) fillLog(g *store.Grant, nowMS, taken int64) {
	newest := rec.newestMS
	if taken > 0 {
		newest = max(nowMS, newest)
	}
	if used := rec.used + taken; used > 0 {
		g.Remaining = max(0, g.Limit.Capacity-used)
		g.ResetMS = newest + g.Limit.WindowMS - nowMS
	} else {
		g.Remaining = g.Limit.Capacity
	}
}
