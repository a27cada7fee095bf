// Package moment is the time of one check, read once and only where it matters.
package moment

import (
	"time"

	"github.com/tallygate/tallygate/rules"
)

// Clock is the time of one check. It is read when it is first asked for: most checks
// never do, and reading it took a twelfth of their time. Not safe for concurrent use.
type Clock struct {
	read func() time.Time
	at   time.Time // zero until it is read
}

// New returns a clock that is read by read.
func New(read func() time.Time) Clock { return Clock{read: read} }

// Now returns the time of the check.
func (c *Clock) Now() time.Time {
	if c.at.IsZero() {
		c.at = c.read()
	}
	return c.at
}

// Of returns the time by which a rule's numbers are to be asked.
func (c *Clock) Of(rule *rules.Compiled) time.Time {
	if !rule.Timed() {
		return time.UnixMilli(0)
	}
	return c.Now()
}

// Forget makes it the clock of the next check.
func (c *Clock) Forget() { c.at = time.Time{} }
