package admin

import (
	"context"
	"strings"
	"sync"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
	"github.com/tallygate/tallygate/rules"
)

// mirror is all rules and overrides at one revision, for lists: a page then costs
// the database one question, and pages of one revision are of one moment. Asked for
// one thing the API goes to the database.
type mirror struct {
	all wire.Copy

	mu    sync.Mutex // guards what follows
	hash  string     // of the set that facts are of
	facts map[string]facts
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
	set, err := m.all.Whole(ctx)
	if err != nil {
		return view{}, err
	}
	if set.Hash != m.hash || m.facts == nil {
		m.facts, m.hash = factsOf(set.Rules, m.facts), set.Hash
	}
	return view{set, m.facts}, nil
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
