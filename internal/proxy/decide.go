package proxy

import (
	"cmp"
	"context"
	"errors"
	"time"

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
	if d.proxy.config.Domain != nil {
		check.Domain = d.proxy.config.Domain()
	}
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
		return d.proxy.fits(d.limiter.Decide(ctx, check, v))
	}
	hold, err := d.proxy.config.Reserver.Reserve(ctx, check, v)
	if err == nil && v.Allow && hold != nil {
		x.hold, x.cost = hold, cmp.Or(check.Cost, 1)
	}
	return d.proxy.fits(err)
}

// unfitPace is the pause between two lines that say that costs do not fit the rules.
const unfitPace = time.Minute

// errUnfit is what the limiter says of costs that are the proxy's own, not the client's:
// it gets no more than that the fault is on this side.
var errUnfit = errors.New("the proxy's cost does not fit a rule")

// fits passes an error on, unless it is that the cost, which the proxy's settings make,
// does not fit a rule.
func (p *Proxy) fits(err error) error {
	code := tallygate.CodeOf(err)
	if err == nil || code != tallygate.CodeInvalidCost && code != tallygate.CodeNotReservable {
		return err
	}
	if unlogged, ok := p.unfit.Pass(p.config.Now(), unfitPace); ok {
		p.config.Log.Error("requests are refused with 500, since their cost does not fit a rule; change the rule, Limit.Cost (--cost) or CostHeader (--cost-header)",
			"error", err, "unlogged", unlogged)
	}
	return errUnfit
}
