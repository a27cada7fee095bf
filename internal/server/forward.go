package server

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	routes "github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/problem"
)

// Identities tells who asks, and whether whoever passes a request on is one of our
// gateways; an *identity.Resolver.
type Identities interface {
	Resolve(f *identity.Facts, attrs map[string]string) error
	Trusts(f *identity.Facts) bool
}

// Forward is what GET /v1/ratelimit:forward has to know about the requests that a
// gateway asks for.
type Forward struct {
	// Identity says who asks. It must trust the gateway. Required.
	Identity Identities
	// Route returns the route's template of the original request. Nil means that all
	// are "other": rules can then tell routes apart only by "*".
	Route func(r *http.Request) string
	// Domain returns the set of rules of now; nil, or "", means "default". While it has
	// no rule at all, everything passes, and the server's Log is warned at most once a
	// minute.
	Domain func() string
	// Attributes adds facts of the original request, or changes them. Nil adds none.
	Attributes func(r *http.Request, attrs map[string]string)
}

// domain is the set of rules of now.
func (f *Forward) domain() string {
	if f.Domain == nil {
		return ""
	}
	return f.Domain()
}

// The headers in which gateways tell the original request.
const (
	headerURI            = "X-Forwarded-Uri"
	headerMethod         = "X-Forwarded-Method"
	headerHost           = "X-Forwarded-Host"
	headerProto          = "X-Forwarded-Proto"
	headerOriginalURI    = "X-Original-Uri"
	headerOriginalMethod = "X-Original-Method"

	// headerStatus says which status stands behind that of deny_status.
	headerStatus = "X-Tallygate-Status"
	// headerCode is the code of the problem, for gateways that drop the body.
	headerCode = "X-Tallygate-Code"
)

// maxForwardHeaders bounds the headers where gateways ask: they send their client's
// own along, of which NGINX takes up to 32 KiB, and a refusal here would be an error
// page there.
const maxForwardHeaders = 64 << 10

// firstAttrs is the number of attributes for which a question has room.
const firstAttrs = 8

// forwarded is everything one question of a gateway needs, reused.
type forwarded struct {
	attrs   map[string]string
	facts   identity.Facts
	verdict tallygate.Verdict
	fields  headers.Fields
}

// forward answers GET /v1/ratelimit:forward: 200, or a status that the gateway passes
// on, both with the client's headers.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.wrongMethod(w, r, "GET, HEAD")
		return
	}
	deny, err := denyStatus(r.URL.RawQuery)
	if err != nil {
		writeProblem(w, asError(err))
		return
	}
	if s.inflight.Add(1) > s.maxInflight {
		s.inflight.Add(-1)
		s.shed.Add(1)
		s.refuseForward(w, deny, &tallygate.Error{
			Code: tallygate.CodeOverloaded, Message: fmt.Sprintf("more than %d checks are in flight", s.maxInflight),
		})
		return
	}
	defer s.inflight.Add(-1)
	x := s.forwards.Get().(*forwarded) //nolint:forcetypeassert // the pool holds nothing else
	defer s.freeForwarded(x)

	switch err := s.decideForward(r, x); {
	case tallygate.CodeOf(err) == tallygate.CodeUnknownDomain:
		// Deleting the last rule must not stop the site.
		s.silent.Passed(time.Now(), s.gateways.domain())
		w.WriteHeader(http.StatusOK)
	case err != nil:
		s.refuseForward(w, deny, asError(err))
	case x.verdict.Allow:
		x.fields.SetIn(w.Header())
		w.WriteHeader(http.StatusOK)
	default:
		x.fields.SetIn(w.Header())
		writeDenial(w, deny, &x.verdict)
	}
}

// denyStatus reads which status stands for every refusal; 0 where each has its own.
// Other parameters are passed over: Caddy appends the client's query unless it is told
// not to.
func denyStatus(query string) (int, error) {
	values, err := url.ParseQuery(query)
	list := values["deny_status"]
	switch {
	case len(list) == 0:
		return 0, nil
	case err != nil:
		return 0, fault("", "the query is malformed")
	case len(list) > 1:
		return 0, fault("", "deny_status is there more than once; send it once")
	}
	switch list[0] {
	case "401", "403", "429":
		return strconv.Atoi(list[0])
	default:
		return 0, fault("", "deny_status %.40q is none of 401, 403 and 429, the statuses that gateways take for a refusal", list[0])
	}
}

// decideForward finds out what the gateway was asked for, by whom, and decides.
func (s *Server) decideForward(r *http.Request, x *forwarded) error {
	x.facts = identity.Facts{Peer: r.RemoteAddr, Header: r.Header}
	if !s.gateways.Identity.Trusts(&x.facts) {
		peer := addressOf(r.RemoteAddr)
		s.untrusted.Add(1)
		s.strangers.Warn(time.Now(), "a gateway that is not within --trusted-proxies asks, and all that it asks for is refused with 403; add its network there (TALLYGATE_TRUSTED_PROXIES)", "peer", peer)
		return &tallygate.Error{
			Code: codeForbidden,
			Message: fmt.Sprintf("%.60s is not within --trusted-proxies, so that what it says of its client is not believed; start Tallygate with its network there, such as --trusted-proxies %.60s",
				peer, network(peer)),
		}
	}
	asked, err := original(r)
	if err != nil {
		return err
	}
	x.facts.Query = asked.URL.RawQuery
	if err := s.gateways.Identity.Resolve(&x.facts, x.attrs); err != nil {
		return err
	}
	x.attrs["route"] = routes.Other
	if s.gateways.Route != nil {
		x.attrs["route"] = s.gateways.Route(asked)
	}
	if s.gateways.Attributes != nil {
		s.gateways.Attributes(asked, x.attrs)
	}
	check := tallygate.Check{Domain: s.gateways.domain(), Attributes: x.attrs}
	if err := s.limiter.Decide(r.Context(), check, &x.verdict); err != nil {
		return err
	}
	s.encodeHeaders(&x.fields, &x.verdict)
	return nil
}

// addressOf is a peer without its port.
func addressOf(peer string) string {
	if at, err := netip.ParseAddrPort(peer); err == nil {
		return at.Addr().Unmap().WithZone("").String()
	}
	return peer
}

// network is an address as --trusted-proxies takes it.
func network(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return netip.PrefixFrom(a, a.BitLen()).String()
	}
	return "ADDRESS/32"
}

// original is the request that the gateway was asked for. It has no TLS: the
// certificate of this connection is the gateway's, not the client's.
//
// A gateway passes its client's headers on, also those of the family that the gateway
// itself does not write. So one family tells all of it, and where both are there and
// say different things, nobody knows which is the gateway's.
func original(r *http.Request) (*http.Request, error) {
	var f field
	uri, method := f.of(r, headerURI), f.of(r, headerMethod)
	otherURI, otherMethod := f.of(r, headerOriginalURI), f.of(r, headerOriginalMethod)
	host, proto := f.of(r, headerHost), f.of(r, headerProto)
	switch {
	case f.err != nil:
		return nil, f.err
	case uri == "":
		uri, method = otherURI, otherMethod
	case otherURI != "" && (otherURI != uri || otherMethod != method):
		return nil, ambiguous("X-Forwarded-Uri and X-Original-URI tell of different requests; have the gateway clear the one that it does not set")
	}
	switch {
	case uri == "":
		return nil, fault("", "there is neither X-Forwarded-Uri nor X-Original-URI; have the gateway send the original path")
	case method == "":
		return nil, fault("", "there is no X-Forwarded-Method (or X-Original-Method beside X-Original-URI); have the gateway send the original method")
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, fault("", "the original path is malformed")
	}
	if host == "" {
		host = r.Host
	}
	u.Scheme, u.Host = proto, ""
	asked := &http.Request{Method: method, URL: u, Host: host, Header: r.Header, RemoteAddr: r.RemoteAddr}
	return asked.WithContext(context.WithoutCancel(r.Context())), nil
}

// field reads single headers and keeps the first fault.
type field struct{ err error }

func (f *field) of(r *http.Request, name string) string {
	lines := r.Header[name]
	if len(lines) > 1 && f.err == nil {
		f.err = ambiguous(name + " is there more than once; have the gateway replace what its client sent")
	}
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

func ambiguous(message string) error {
	return &tallygate.Error{Code: codeAmbiguous, Message: message}
}

// refuseForward answers where there is no verdict. Gateways take most statuses for an
// error of their own, so a faulty check is never answered as one of this server.
func (s *Server) refuseForward(w http.ResponseWriter, deny int, e *tallygate.Error) {
	status, _ := statusOf(e.Code)
	if status == http.StatusInternalServerError {
		e = &tallygate.Error{Code: codeNotReady, Message: "there was no answer", Err: e}
		status = http.StatusServiceUnavailable
	}
	w.Header().Set(headerStatus, strconv.Itoa(status))
	w.Header().Set(headerCode, string(e.Code))
	if deny == 0 {
		deny = status
	}
	writeProblemAs(w, deny, e)
}

// writeDenial answers a denied request.
func writeDenial(w http.ResponseWriter, deny int, v *tallygate.Verdict) {
	if deny == 0 {
		deny = http.StatusTooManyRequests
	}
	w.Header().Set(headerStatus, strconv.Itoa(http.StatusTooManyRequests))
	w.Header().Set(headerCode, problem.Limited)
	problem.Write(w, problem.Denied(deny, v.DeniedBy))
}

// freeForwarded gives a question back. It forgets the request, unless it has grown
// rarely large.
func (s *Server) freeForwarded(x *forwarded) {
	const keepAttrs = 64
	if len(x.attrs) > keepAttrs {
		return
	}
	clear(x.attrs)
	x.facts = identity.Facts{}
	s.forwards.Put(x)
}
