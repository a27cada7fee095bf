package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/store"
)

// Reserver begins and gives up reservations; a *tallygate.Limiter.
type Reserver interface {
	Reserve(ctx context.Context, check tallygate.Check, id string, ttl time.Duration) (tallygate.Verdict, tallygate.Reservation, error)
	Cancel(ctx context.Context, r tallygate.Reservation) (tallygate.Settled, error)
}

// Committer settles reservations; a *tallygate.Limiter.
type Committer interface {
	Commit(ctx context.Context, r tallygate.Reservation, cost int64) (tallygate.Settled, error)
	CommitEach(ctx context.Context, r tallygate.Reservation, costs map[string]int64) (tallygate.Settled, error)
}

// reservations is what the endpoints of reservations need.
type reservations interface {
	Reserver
	Committer
}

// The members of a reservation's bodies, as bits of a set of those seen; they go on
// where those of a check end.
const (
	seenID = 1 << (iota + 16)
	seenTTL
	seenReservation
	seenCosts
)

// maxCosts bounds the costs by rule: a check has no more entries.
const maxCosts = store.MaxOps

// reserve answers POST /v1/ratelimit:reserve. A denial is an answer too: 200.
func (s *Server) reserve(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, (*Server).answerReserve)
}

func (s *Server) answerReserve(ctx context.Context, x *exchange) error {
	if err := x.request.decodeReserve(x.body); err != nil {
		return err
	}
	v, reservation, err := s.reservations.Reserve(ctx, x.request.check, x.request.id, x.request.ttl)
	if err != nil {
		return err
	}
	s.encodeHeaders(&x.fields, &v)
	x.answer = appendVerdict(x.answer[:0], &v, &x.fields)
	if reservation != "" {
		x.answer = appendText(x.answer[:len(x.answer)-1], `,"reservation":`, string(reservation))
		x.answer = append(x.answer, '}')
	}
	return nil
}

// commit answers POST /v1/ratelimit:commit.
func (s *Server) commit(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, (*Server).answerCommit)
}

func (s *Server) answerCommit(ctx context.Context, x *exchange) error {
	q := &x.request
	seen, err := q.decodeSettle(x.body, true)
	if err != nil {
		return err
	}
	var settled tallygate.Settled
	if seen&seenCosts != 0 {
		settled, err = s.reservations.CommitEach(ctx, q.reservation, q.costs)
	} else {
		settled, err = s.reservations.Commit(ctx, q.reservation, q.check.Cost)
	}
	if err == nil {
		x.answer = appendSettled(x.answer[:0], &settled)
	}
	return err
}

// cancel answers POST /v1/ratelimit:cancel.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, (*Server).answerCancel)
}

func (s *Server) answerCancel(ctx context.Context, x *exchange) error {
	if _, err := x.request.decodeSettle(x.body, false); err != nil {
		return err
	}
	settled, err := s.reservations.Cancel(ctx, x.request.reservation)
	if err == nil {
		x.answer = appendSettled(x.answer[:0], &settled)
	}
	return err
}

// decodeReserve reads a body: one check, with an id and a time.
func (q *request) decodeReserve(body []byte) error {
	q.scan.reset(body)
	q.id, q.ttl = "", 0
	if _, err := q.decodeCheck(reserving); err != nil {
		return err
	}
	return q.scan.end()
}

func (q *request) decodeID() (err error) {
	q.id, err = q.text()
	if err == nil && q.id == "" {
		return fault("", "the id is empty; leave it out for one of its own")
	}
	return err
}

// decodeTTL reads a time; whether it is within bounds the limiter says.
func (q *request) decodeTTL() error {
	if c := q.scan.peek(); c != '-' && (c < '0' || c > '9') {
		return q.wrong(tallygate.CodeBadRequest, "a whole number of ms")
	}
	text, err := q.scan.number()
	if err != nil {
		return err
	}
	ms, parse := strconv.ParseInt(string(text), 10, 64)
	least, most := tallygate.MinReservationTTL.Milliseconds(), tallygate.MaxReservationTTL.Milliseconds()
	if parse != nil || ms < least || ms > most {
		return fault("", "%s is no whole number of ms from %d to %d", shorten(text), least, most)
	}
	q.ttl = time.Duration(ms) * time.Millisecond
	return nil
}

// decodeSettle reads the body of a commit, or of a cancel, which has no cost.
func (q *request) decodeSettle(body []byte, costs bool) (seen uint, err error) {
	q.scan.reset(body)
	q.check, q.reservation = tallygate.Check{}, ""
	known := "reservation"
	if costs {
		known = "reservation, and cost or costs"
	}
	err = q.scan.object(func(name []byte) error {
		switch member := string(name); {
		case member == "reservation":
			return q.once(&seen, seenReservation, member, func() error {
				text, err := q.text()
				q.reservation = tallygate.Reservation(text)
				return err
			})
		case member == "cost" && costs:
			return q.once(&seen, seenCost, member, q.decodeCost)
		case member == "costs" && costs:
			return q.once(&seen, seenCosts, member, q.decodeCosts)
		}
		return unknown(name, known)
	})
	switch {
	case err != nil:
		return seen, err
	case seen&seenReservation == 0:
		return seen, fault("/reservation", "it is missing: what to settle is the reservation that :reserve answered with")
	case costs && seen&(seenCost|seenCosts) == 0:
		return seen, fault("/cost", "a commit needs the cost, or costs by rule")
	case seen&seenCost != 0 && seen&seenCosts != 0:
		return seen, fault("/costs", "a commit has one cost for all rules, or costs by rule, not both")
	}
	return seen, q.scan.end()
}

func (q *request) decodeCosts() error {
	q.costs = make(map[string]int64)
	if q.scan.peek() != '{' {
		return fault("", "costs is an object of rules and numbers")
	}
	return q.scan.object(func(name []byte) error {
		rule := string(name)
		if _, twice := q.costs[rule]; twice {
			return within(shorten(name), fault("", "rule %q stands there twice", shorten(name)))
		}
		if len(q.costs) == maxCosts {
			return fault("", "more than %d costs", maxCosts)
		}
		cost, _, err := q.cost()
		if err != nil {
			return within(shorten([]byte(rule)), err)
		}
		q.costs[rule] = cost
		return nil
	})
}

// appendSettled appends the JSON of what became of a reservation.
func appendSettled(dst []byte, a *tallygate.Settled) []byte {
	dst = appendText(append(dst, '{'), `"settlement":`, string(a.Settlement))
	dst = append(dst, `,"entries":[`...)
	for i := range a.Entries {
		e := &a.Entries[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(append(dst, '{'), `"rule":`, e.Rule)
		if e.Shadow {
			dst = append(dst, `,"mode":"shadow"`...)
		}
		if e.Counted {
			dst = appendNumber(dst, `,"limit":`, e.Limit)
			dst = appendNumber(dst, `,"remaining":`, e.Remaining)
			dst = appendNumber(dst, `,"reset_ms":`, e.ResetMS)
		}
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}
