package rules

import "time"

// ownMark begins the id of a rule that is a caller's own: no rule of a source can
// have such an id, so that their buckets are never the same.
const ownMark = "~"

// Own compiles a rule that a caller brings with a check, and that no snapshot holds.
// Its id is that of r with a "~" before it, and its ordinal -1. Its numbers must be
// part of the id: two that share one would count in one bucket by numbers of the same
// revision, of which the first would win.
func Own(r Rule) (*Compiled, error) {
	snapshot, problems := Compile(nil, Set{Rules: []Rule{r}}, 1, time.Time{})
	if err := problems.Err(); err != nil {
		return nil, err
	}
	c := snapshot.rules[0]
	c.rule.ID = ownMark + c.rule.ID
	c.ordinal = -1
	return c, nil
}
