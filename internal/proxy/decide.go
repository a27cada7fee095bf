package proxy

import (
	"cmp"
	"context"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
)

// decider stands before the limiter: back-pressure first, which is this pod's own and
// never changes what the limiter is asked.
type decider struct {
	proxy   *Proxy
	limiter httplimit.Limiter
}

// Decide implements [httplimit.Limiter].
func (d *decider) Decide(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) error {
	x := exchangeOf(ctx)
	g := d.proxy.guard
	if g == nil {
		return d.ask(ctx, x, check, v)
	}
	if !g.admit(d.proxy.elapsed(), &check, x) {
		return &tallygate.Error{
			Code:    tallygate.CodeOverloaded,
			Message: "the upstream is overloaded; requests of this priority are held back",
		}
	}
	err := d.ask(ctx, x, check, v)
	g.settle(d.proxy.elapsed(), x, err == nil && v.Allow)
	return err
}

// ask asks the limiter, or where the answer tells the cost, has it hold the estimate.
func (d *decider) ask(ctx context.Context, x *exchange, check tallygate.Check, v *tallygate.Verdict) error {
	if d.proxy.config.Reserver == nil {
		return d.limiter.Decide(ctx, check, v)
	}
	hold, err := d.proxy.config.Reserver.Reserve(ctx, check, v)
	if err == nil && v.Allow && hold != nil {
		x.hold, x.cost = hold, cmp.Or(check.Cost, 1)
	}
	return err
}
