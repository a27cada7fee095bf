package headers

import (
	"fmt"
	"strconv"
)

// Reset says what X-RateLimit-Reset counts.
type Reset uint8

// The forms of X-RateLimit-Reset.
const (
	// ResetEpoch is the second of the UTC epoch, as GitHub writes it.
	ResetEpoch Reset = iota
	// ResetSeconds is the seconds left, as most gateways write it.
	ResetSeconds
)

// ParseReset returns the form of that name: "epoch" or "seconds".
func ParseReset(name string) (Reset, error) {
	switch name {
	case "epoch":
		return ResetEpoch, nil
	case "seconds":
		return ResetSeconds, nil
	default:
		return 0, fmt.Errorf("reset style %q is neither epoch nor seconds", name)
	}
}

func (s *Style) legacy(f *Fields, facts *Facts) {
	f.list = append(f.list, field{nameLimit, f.policy.limitAt})
	f.number(nameRemaining, facts.Remaining)
	if s.Reset == ResetSeconds {
		f.number(nameReset, seconds(facts.ResetMS))
		return
	}
	f.number(nameReset, seconds(facts.NowMS+facts.ResetMS))
}

func (f *Fields) number(as name, n int64) {
	start := len(f.text)
	f.text = strconv.AppendInt(f.text, max(n, 0), 10)
	f.add(as, start)
}
