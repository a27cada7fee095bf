package rls

import (
	"strconv"
	"sync"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// maxOverrides bounds the rules made of limits that requests bring; beyond it all are
// made anew, which loses no count.
const maxOverrides = 1024

// overrides are the rules made of limits that descriptors bring.
type overrides struct {
	mu    sync.RWMutex // guards rules
	rules map[override]*rules.Compiled
}

// override is the numbers of one: so many requests in a window.
type override struct {
	domain   string
	requests uint32
	windowS  int64
}

// overrideOf reads the limit that descriptor i brings. A window longer than can be
// counted is the longest one.
func overrideOf(domain string, l *commonv3.RateLimitDescriptor_RateLimitOverride, i int) (override, error) {
	windowS := secondsOf(l.GetUnit())
	if windowS == 0 {
		return override{}, invalid(field(i, "limit/unit"), l.GetUnit().String()+" is no unit to count in; SECOND, MINUTE, HOUR, DAY, MONTH and YEAR are")
	}
	times := int64(max(l.GetUnitMultiplier().GetValue(), 1))
	return override{domain, l.GetRequestsPerUnit(), min(windowS*times, maxWindowS)}, nil
}

// bind returns the rule that a descriptor brings, and the key it counts: all of the
// descriptor's entries. The numbers are part of the rule's name, so other numbers
// begin another count.
func (o *overrides) bind(k override, entries []*commonv3.RateLimitDescriptor_Entry) (rules.Bound, error) {
	rule, err := o.rule(k)
	if err != nil || k.requests == 0 {
		return rules.Bound{Rule: rule}, err
	}
	parts := make([]string, 0, 2*len(entries)+1)
	parts = append(parts, "envoy")
	for _, e := range entries {
		parts = append(parts, e.GetKey(), e.GetValue())
	}
	return rules.Bound{Rule: rule, Key: identity.Key(parts)}, nil
}

// rule returns the rule of an override: a fixed window, or one that always refuses
// where no request is allowed.
func (o *overrides) rule(k override) (*rules.Compiled, error) {
	o.mu.RLock()
	rule := o.rules[k]
	o.mu.RUnlock()
	if rule != nil {
		return rule, nil
	}
	r := rules.Rule{
		ID:     "envoy-" + strconv.FormatUint(uint64(k.requests), 10) + "-per-" + strconv.FormatInt(k.windowS, 10) + "s",
		Domain: k.domain, CoversAll: true, Action: rules.ActionDeny,
	}
	if k.requests > 0 {
		r.Action, r.Algorithm, r.Identity = rules.ActionLimit, limit.FixedWindow, []string{"descriptor"}
		r.Numbers = rules.Numbers{Limit: int64(k.requests), WindowS: k.windowS}
	}
	rule, err := rules.Own(r)
	if err != nil {
		return nil, invalid("domain", err.Error())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rules == nil || len(o.rules) >= maxOverrides {
		o.rules = map[override]*rules.Compiled{}
	}
	o.rules[k] = rule
	return rule, nil
}
