package tallygate

import (
	"time"

	"github.com/tallygate/tallygate/rules"
)

// clock is the time of one check. It is read when it is first asked for: most checks
// never do, and reading it took a twelfth of their time.
type clock struct {
	read func() time.Time
	at   time.Time // zero until it is read
}

// now returns the time of the check.
func (c *clock) now() time.Time {
	if c.at.IsZero() {
		c.at = c.read()
	}
	return c.at
}

// of returns the time by which a rule's numbers are to be asked.
func (c *clock) of(rule *rules.Compiled) time.Time {
	if !rule.Timed() {
		return time.UnixMilli(0)
	}
	return c.now()
}

// forget makes it the clock of the next check.
func (c *clock) forget() { c.at = time.Time{} }
