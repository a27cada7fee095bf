package headers

// name is one of the fields this package may write.
type name uint8

const (
	nameLimit name = iota
	nameRemaining
	nameReset
	namePolicy
	nameRateLimit
	nameRetryAfter // the last one
)

// sent is the name as it is documented and sent.
func (n name) sent() string {
	switch n {
	case nameLimit:
		return "X-RateLimit-Limit"
	case nameRemaining:
		return "X-RateLimit-Remaining"
	case nameReset:
		return "X-RateLimit-Reset"
	case namePolicy:
		return "RateLimit-Policy"
	case nameRateLimit:
		return "RateLimit"
	case nameRetryAfter:
	}
	return "Retry-After"
}

// canonical is the name in net/http's spelling.
func (n name) canonical() string {
	switch n {
	case nameLimit:
		return "X-Ratelimit-Limit"
	case nameRemaining:
		return "X-Ratelimit-Remaining"
	case nameReset:
		return "X-Ratelimit-Reset"
	case namePolicy:
		return "Ratelimit-Policy"
	case nameRateLimit:
		return "Ratelimit"
	case nameRetryAfter:
	}
	return "Retry-After"
}

// Names are all fields this package may write: a gateway drops a client's copies
// of them.
func Names() []string { return each(name.sent) }

// CanonicalNames are [Names] in net/http's spelling.
func CanonicalNames() []string { return each(name.canonical) }

func each(spell func(name) string) []string {
	var list []string
	for n := range nameRetryAfter + 1 {
		list = append(list, spell(n))
	}
	return list
}
