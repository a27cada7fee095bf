package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/admin/token"
)

// maxTokenBytes bounds what is hashed to look a token up; ours have 46 bytes.
const maxTokenBytes = 512

// caller is who asks.
type caller struct {
	token token.Token
	// who stands in the audit, paced is whose pace it is.
	who, paced string
}

// identify says who asks, or why nobody may.
func (a *API) identify(r *http.Request) (caller, error) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return caller{}, refuse(api.Forbidden, "the peer has no address")
	}
	address := peer.Addr().Unmap().WithZone("")
	c := caller{paced: "address " + address.String()}
	// An IPv6 network counts as one peer, as everywhere.
	if ip, ok := identity.IP(address.String()); ok {
		c.paced = "address " + ip
	}
	if a.cfg.Tokens == nil {
		return a.local(r, address, c)
	}
	shown, _ := identity.Bearer(r.Header["Authorization"])
	if shown == "" {
		return c, refuse(api.Unauthorized, "send Authorization: Bearer TOKEN")
	}
	if len(shown) > maxTokenBytes {
		return c, refuse(api.Unauthorized, "this is no token of this server")
	}
	t, ok := a.cfg.Tokens.Find(shown)
	if !ok {
		return c, refuse(api.Unauthorized, "this is no token of this server")
	}
	return caller{token: t, who: t.Name, paced: "token " + t.Name}, nil
}

// local takes callers on this machine as admins, where there are no tokens.
func (*API) local(r *http.Request, address netip.Addr, c caller) (caller, error) {
	if !address.IsLoopback() {
		return c, refuse(api.Forbidden, "without tokens the admin API answers this machine alone; start it with a file of tokens")
	}
	// A page of somebody else whose name resolves to this machine is none of ours.
	if !loopbackHost(r.Host) {
		return c, refuse(api.Forbidden, fmt.Sprintf("without tokens the admin API is asked by localhost or its address, not as %q", clip(r.Host)))
	}
	who := r.Header.Get("Tallygate-Who")
	if who == "" {
		who = "anonymous"
	}
	c.token = token.Token{Name: who, Role: token.Admin}
	if c.who = who; !strings.Contains(who, "@") { // who says where from need not be told
		c.who += "@" + address.String()
	}
	return c, nil
}

// loopbackHost reports whether a Host header names this machine.
func loopbackHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

// keepPace spends one request of the caller's, or says when to come back.
func (a *API) keepPace(ctx context.Context, c caller) error {
	ok, wait := a.pace.take(ctx, c.paced)
	if ok {
		return nil
	}
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	r := refuse(api.TooManyRequests, fmt.Sprintf("the %s asks too often; wait %d s", strings.SplitN(c.paced, " ", 2)[0], seconds))
	r.RetryAfter = seconds
	return r
}
