package request

import (
	"crypto/x509"
	"net/http"

	"github.com/tallygate/tallygate/identity"
)

// Of returns the facts of a request. They point into it and are valid as long as
// it is.
func Of(r *http.Request) identity.Facts {
	f := identity.Facts{Peer: r.RemoteAddr, Header: r.Header}
	if r.URL != nil {
		f.Query = r.URL.RawQuery
	}
	if r.TLS != nil {
		f.Certificate = Certificate(r.TLS.VerifiedChains)
	}
	return f
}

// Certificate returns the client's certificate of the chains that a TLS handshake
// has verified, nil if there are none: what a client presents without being asked
// to prove it is not believed.
func Certificate(verified [][]*x509.Certificate) identity.Certificate {
	if len(verified) == 0 || len(verified[0]) == 0 {
		return nil
	}
	return (*leaf)(verified[0][0])
}

// leaf is a client certificate as an identity.
type leaf x509.Certificate

// Name implements [identity.Certificate].
func (l *leaf) Name(san bool) string {
	switch {
	case !san:
		return l.Subject.CommonName
	case len(l.URIs) > 0:
		return l.URIs[0].String()
	case len(l.DNSNames) > 0:
		return l.DNSNames[0]
	case len(l.EmailAddresses) > 0:
		return l.EmailAddresses[0]
	}
	return ""
}
