package proxy

import (
	"context"
	"time"

	"github.com/tallygate/tallygate"
)

// Reservations returns the Reserver of a limiter. ttl is how long a request may take
// before what it reserved comes back by itself, as [tallygate.Limiter.Reserve] has it;
// the cost that is told later is added in full.
func Reservations(l *tallygate.Limiter, ttl time.Duration) Reserver {
	return &reservations{limiter: l, ttl: ttl}
}

type reservations struct {
	limiter *tallygate.Limiter
	ttl     time.Duration
}

// Reserve implements [Reserver].
func (r *reservations) Reserve(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) (Hold, error) {
	got, reservation, err := r.limiter.Reserve(ctx, check, "", r.ttl)
	*v = got
	if err != nil || reservation == "" {
		return nil, err
	}
	return &held{limiter: r.limiter, reservation: reservation}, nil
}

type held struct {
	limiter     *tallygate.Limiter
	reservation tallygate.Reservation
}

// Commit implements [Hold].
func (h *held) Commit(ctx context.Context, cost int64) error {
	_, err := h.limiter.Commit(ctx, h.reservation, cost)
	return err
}

// Cancel implements [Hold].
func (h *held) Cancel(ctx context.Context) error {
	_, err := h.limiter.Cancel(ctx, h.reservation)
	return err
}
