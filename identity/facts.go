package identity

import "fmt"

// Bounds of what a request may say about itself.
const (
	// MaxKey bounds one identity value: 4 KiB, as much as a key may have.
	MaxKey = 4 << 10
	// MaxHeader bounds what is read of one header or query: 16 KiB.
	MaxHeader = 16 << 10
	// MaxSources bounds the attributes a [Resolver] reads beside the address.
	MaxSources = 16
)

// Facts are what a request says about itself, before anybody has decided what of
// it is believed. Package identity/request has those of an *http.Request.
type Facts struct {
	// Peer is the socket's other end, with or without port.
	Peer string
	// Header holds the header fields, one element a line, in the order received;
	// names are canonical (X-Api-Key).
	Header map[string][]string
	// LowerNames says that the names in Header are in lower case instead, as in
	// gRPC metadata.
	LowerNames bool
	// Query is the URL's raw query.
	Query string
	// Certificate is the client's, verified; nil if there is none.
	Certificate Certificate
}

// Certificate is a client certificate that was verified against a trusted root.
type Certificate interface {
	// Name returns the subject's common name where san is false, else the first
	// subject alternative name: a URI before a DNS name before an email address.
	// It is "" where there is none.
	Name(san bool) string
}

// Verifier checks a bearer token and returns its claims as text. ok is false
// unless signature, times and all else it insists on are right. Package
// identity/jwt has one. It is used by any number of goroutines.
type Verifier interface {
	Claims(token string) (claims map[string]string, ok bool)
}

// Fault says what is wrong with an identity that a request brought.
type Fault string

// The faults.
const (
	// Ambiguous: there are several, and whichever were chosen, another part of the
	// system could choose the other.
	Ambiguous Fault = "ambiguous"
	// TooLong: it is above [MaxKey], or what holds it is above [MaxHeader].
	TooLong Fault = "too_large"
)

// SourceError says that a request's identity cannot be told. Such a request is
// refused: counting it as anonymous would be a way out of its own limit.
type SourceError struct {
	// Attribute is the identity, Source where it was read: "header:X-Api-Key".
	Attribute, Source string
	Fault             Fault
}

// Error names source, fault and bound. It never shows the value, which may be a
// secret.
func (e *SourceError) Error() string {
	if e.Fault == TooLong {
		return fmt.Sprintf("identity %s: %s is longer than %d bytes (or its header than %d); shorten it", e.Attribute, e.Source, MaxKey, MaxHeader)
	}
	return fmt.Sprintf("identity %s: %s is there more than once; send it once", e.Attribute, e.Source)
}
