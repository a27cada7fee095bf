package headers

import "math"

// EncodeRetry adds Retry-After in whole seconds, at least 1, to f. It adds none
// where the request was allowed or no waiting helps.
func (s *Style) EncodeRetry(f *Fields, facts Facts) {
	if !facts.Denied || facts.RetryMS <= 0 {
		return
	}
	f.number(nameRetryAfter, max(1, seconds(s.spread(facts.RetryMS))))
}

// spread moves a wait later by up to Jitter of it, never earlier: the told time
// must be enough.
func (s *Style) spread(ms int64) int64 {
	jitter := min(s.Jitter, MaxJitter)
	if s.Rand == nil || jitter <= 0 {
		return ms
	}
	return ms + int64(math.Floor(float64(ms)*jitter*s.Rand()))
}
