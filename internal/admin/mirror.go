package admin

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
	"github.com/tallygate/tallygate/rules"
)

// mirror is all rules and overrides at one revision, for lists: a page then costs
// the database one question, and pages of one revision are of one moment. Asked for
// one thing the API goes to the database.
type mirror struct {
	reader rulestore.Reader
	now    func() time.Time

	mu       sync.Mutex
	set      rulestore.Set
	facts    map[string]facts
	compared time.Time
}

// facts are what a list asks of a rule, read once a body: somebody may change one by
// hand.
type facts struct {
	live     string // the body it is of
	trial    string // the candidate's
	domain   string // "" where the body cannot be read
	owner    string
	identity []string
	text     string
	// foreign says that live and candidate are of different domains.
	foreign bool
}

// view is a moment of the mirror; nobody changes it.
type view struct {
	rulestore.Set
	facts map[string]facts
}

// view returns everything as it is now.
func (m *mirror) view(ctx context.Context) (view, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.next(ctx)
	if err != nil {
		return view{}, err
	}
	if next.Hash != m.set.Hash || m.facts == nil {
		m.facts = factsOf(next.Rules, m.facts)
	}
	m.set = next
	return view{m.set, m.facts}, nil
}

// next asks for what changed, and from time to time for everything: somebody may
// change rows by hand.
func (m *mirror) next(ctx context.Context) (rulestore.Set, error) {
	now := m.now()
	if !m.compared.IsZero() && now.Sub(m.compared) < rulestore.WholeEvery {
		changes, err := m.reader.Since(ctx, m.set.Revision)
		switch {
		case err != nil:
			return rulestore.Set{}, err
		case changes.Revision == m.set.Revision:
			return m.set, nil
		case changes.Revision > m.set.Revision:
			return wire.Merge(m.set, changes), nil
		}
		// The database is an older one than before.
	}
	set, err := m.reader.Whole(ctx)
	if err == nil {
		m.compared = now
	}
	return set, err
}

// factsOf reads rules, but for those that did not change.
func factsOf(list []rulestore.Rule, before map[string]facts) map[string]facts {
	out := make(map[string]facts, len(list))
	for _, r := range list {
		known, ok := before[r.ID]
		if !ok || known.live != string(r.Live) || known.trial != string(r.Candidate.Body) {
			known = factOf(r)
		}
		out[r.ID] = known
	}
	return out
}

func factOf(r rulestore.Rule) facts {
	out := facts{live: string(r.Live), trial: string(r.Candidate.Body), text: strings.ToLower(r.ID + "\n" + string(r.Live))}
	rule, problems := rules.ParseRule(r.Live)
	if len(problems) > 0 {
		return out
	}
	out.domain, out.owner, out.identity = named(rule.Domain), rule.Owner, rule.Identity
	out.foreign = r.Candidate.Body != nil && domainOf(r.Candidate.Body) != out.domain
	return out
}

// domainOf returns the domain of a rule's body; "" where it cannot be read.
func domainOf(body []byte) string {
	rule, problems := rules.ParseRule(body)
	if len(problems) > 0 {
		return ""
	}
	return named(rule.Domain)
}

// named is a domain that may have been left out.
func named(domain string) string {
	if domain == "" {
		return rules.DefaultDomain
	}
	return domain
}
