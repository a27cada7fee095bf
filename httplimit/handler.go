package httplimit

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/unlimited"
)

// attrRoute is the attribute that holds the route's template.
const attrRoute = "route"

// Handler returns a middleware. It panics without a Limiter, as net/http does
// without a handler: that program cannot have worked.
func Handler(c Config) func(http.Handler) http.Handler {
	if c.Limiter == nil {
		panic("httplimit: Config.Limiter is nil; set it to what tallygate.New returned")
	}
	if c.Identity == nil {
		c.Identity = &identity.Resolver{}
	}
	g := &gate{config: c, style: c.style(), ours: headers.CanonicalNames(), silent: unlimited.To(c.Log)}
	g.passes.New = func() any { return &pass{attrs: make(map[string]string, firstAttrs)} }
	return func(next http.Handler) http.Handler {
		return &handler{gate: g, next: next, route: c.routeOf(next)}
	}
}

// gate is what all handlers of one Config share.
type gate struct {
	config Config
	style  headers.Style
	// ours are the headers that only this package may write.
	ours []string
	// silent tells that there is nothing to limit by.
	silent *unlimited.Notice
	passes sync.Pool
}

// handler is one handler behind the gate.
type handler struct {
	*gate
	next  http.Handler
	route func(*http.Request) string
}

// pass is everything one request needs on its way, reused.
type pass struct {
	attrs   map[string]string
	facts   identity.Facts
	verdict tallygate.Verdict
	fields  headers.Fields
}

// Attributes for which a pass has room, and beyond which it is not kept.
const (
	firstAttrs = 8
	keepAttrs  = 64
)

// ServeHTTP is the path of a request. It owns the order of the questions and every
// branch.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = h.withoutOurs(r)
	if h.config.Skip != nil && h.config.Skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	p := h.passes.Get().(*pass) //nolint:forcetypeassert // the pool holds nothing else
	err := h.decide(p, r)
	if h.config.Observe != nil {
		h.observe(p, r, err)
	}
	if noRules(err) {
		h.silent.Passed(time.Now(), h.config.Domain)
	}
	switch {
	case h.config.ReportOnly || noRules(err):
		h.free(p)
		h.next.ServeHTTP(w, r)
	case err != nil:
		h.free(p)
		h.refuse(w, r, err)
	case p.verdict.Allow:
		h.encode(p, w)
		h.free(p) // not held while the next handler runs
		h.next.ServeHTTP(w, r)
	default:
		h.encode(p, w)
		h.deny(w, r, &p.verdict)
		h.free(p)
	}
}

// decide finds out who asks for what and decides.
func (h *handler) decide(p *pass, r *http.Request) error {
	p.facts = request.Of(r)
	if err := h.config.Identity.Resolve(&p.facts, p.attrs); err != nil {
		return err
	}
	p.attrs[attrRoute] = h.route(r)
	if h.config.Attributes != nil {
		h.config.Attributes(r, p.attrs)
	}
	check := tallygate.Check{Domain: h.config.Domain, Attributes: p.attrs}
	if h.config.Cost != nil {
		check.Cost = h.config.Cost(r)
	}
	return h.config.Limiter.Decide(r.Context(), check, &p.verdict)
}

// noRules reports whether the domain has no rule at all. Such a request passes as
// one that no rule matches: deleting the last rule must not stop the site.
func noRules(err error) bool {
	return err != nil && tallygate.CodeOf(err) == tallygate.CodeUnknownDomain
}

func (h *handler) observe(p *pass, r *http.Request, err error) {
	if err != nil {
		h.config.Observe(r, nil, err)
		return
	}
	h.config.Observe(r, &p.verdict, nil)
}

// withoutOurs drops a client's copies of the limit headers, which the application
// could take for ours. The request is the caller's: only a copy is changed.
func (h *handler) withoutOurs(r *http.Request) *http.Request {
	sent := func(name string) bool { return r.Header[name] != nil }
	if !slices.ContainsFunc(h.ours, sent) {
		return r
	}
	changed := *r
	changed.Header = r.Header.Clone()
	for _, name := range h.ours {
		delete(changed.Header, name)
	}
	return &changed
}

// encode sets the limit headers, all of the tightest entry. Where no entry has
// numbers there is nothing true to say, but a denial may know its wait.
func (h *handler) encode(p *pass, w http.ResponseWriter) {
	v := &p.verdict
	p.fields.Reset()
	if v.Tightest < 0 {
		h.style.EncodeRetry(&p.fields, headers.Facts{Denied: !v.Allow, RetryMS: v.RetryMS})
	} else {
		e := &v.Entries[v.Tightest]
		h.style.Encode(&p.fields, headers.Facts{
			Rule: e.Rule, Limit: e.Limit, WindowMS: e.WindowMS,
			Remaining: e.Remaining, ResetMS: e.ResetMS,
			NowMS: v.NowMS, Denied: !v.Allow, RetryMS: v.RetryMS,
		})
	}
	if p.fields.Len() > 0 {
		p.fields.SetIn(w.Header())
	}
}

// free gives a pass back. It forgets the request, so that an idle handler does not
// hold on to it.
func (g *gate) free(p *pass) {
	if len(p.attrs) > keepAttrs {
		return
	}
	clear(p.attrs)
	clear(p.verdict.Entries)
	p.facts = identity.Facts{}
	g.passes.Put(p)
}
