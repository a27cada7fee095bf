package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/sampled"
	"github.com/tallygate/tallygate/rules"
)

// ruleDomain is the domain of the rules for requests that name none: those of the proxy,
// and those that gateways ask about. It is --domain, or without it the default one, or
// where no rule is in that the only one there is. It may be used by any number of
// goroutines.
type ruleDomain struct {
	set   string // --domain; "" for none
	rules interface{ Snapshot() *rules.Snapshot }
	log   *slog.Logger
	now   func() time.Time

	last  atomic.Pointer[domainLook]
	mu    sync.Mutex // held to look, so that each change is looked at once
	fault sampled.Gate
}

// domainLook is what the rules of one snapshot came to.
type domainLook struct {
	snapshot *rules.Snapshot
	name     string
	// fault is why name may not be what is meant; "" for none.
	fault string
}

func newDomain(v *values, g *gate) *ruleDomain {
	return &ruleDomain{set: v.String("domain"), rules: g.rules, log: g.log, now: time.Now}
}

// name returns the domain of now. Where it is not clear, the log says so, at most once a
// minute.
func (d *ruleDomain) name() string {
	at := d.look()
	if at.fault != "" {
		if _, ok := d.fault.Pass(d.now(), time.Minute); ok {
			d.log.Error("it is not clear which rules are meant", "fault", at.fault, "domain", at.name)
		}
	}
	return at.name
}

// look looks at the rules in force, where they are others than the last time.
func (d *ruleDomain) look() *domainLook {
	if last := d.last.Load(); last != nil && last.snapshot == d.rules.Snapshot() {
		return last
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last, snapshot := d.last.Load(), d.rules.Snapshot()
	if last != nil && last.snapshot == snapshot {
		return last
	}
	next := &domainLook{snapshot: snapshot}
	former := ""
	if last != nil {
		former = last.name
	}
	next.name, next.fault = pickDomain(snapshot, d.set, former)
	switch {
	case former == "" && next.name != cmp.Or(d.set, rules.DefaultDomain):
		d.log.Info("--domain is not given: requests are limited by the only domain that has rules", "domain", next.name)
	case former != "" && next.name != former:
		d.log.Warn("--domain is not given, and the rules have changed: requests are limited by another domain", "domain", next.name, "was", former)
	}
	d.last.Store(next)
	return next
}

// pickDomain returns the domain that requests are limited by, and why that may not be
// what is meant. former is what it was before a change of the rules.
func pickDomain(snapshot *rules.Snapshot, set, former string) (name, fault string) {
	var names []string
	for _, r := range snapshot.Rules() {
		if !slices.Contains(names, r.Domain()) {
			names = append(names, r.Domain())
		}
	}
	slices.Sort(names)
	switch {
	case set != "" && len(names) > 0 && !slices.Contains(names, set):
		return set, fmt.Sprintf("no rule is in domain %s, so that nothing is limited; rules are in %s: name one with --domain", set, someOf(names))
	case set != "":
		return set, ""
	case len(names) == 0 || slices.Contains(names, rules.DefaultDomain):
		return rules.DefaultDomain, ""
	case len(names) == 1:
		return names[0], ""
	case !slices.Contains(names, former):
		former = rules.DefaultDomain
	}
	return former, fmt.Sprintf("--domain is not given, and rules are in %s, none in %s: name one with --domain", someOf(names), rules.DefaultDomain)
}

// someOf lists names for a message; a set of rules may have thousands of domains.
func someOf(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more domains", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
