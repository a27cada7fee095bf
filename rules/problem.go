package rules

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong, or doubtful, with a rule or an override: which
// field, which value, what bound, and what to do about it.
type Problem struct {
	// Rule is the id of the rule it concerns, "" where none is known.
	Rule string
	// Field is the name as written, such as "burst", "match.plan" or
	// "identity[1]"; "" where the problem is with the whole.
	Field string
	// Value is the offending value as written, shortened; "" where there is none.
	Value string
	// Message says what is wrong and names the bound: "0 is below 1".
	Message string
	// Fix says what to do: "raise it".
	Fix string
	// Line and Column count from 1; 0 where the source has no lines.
	Line, Column int
	// Warning says that the rule works as written and someone should look at it.
	Warning bool
}

// String returns "field: message; fix", the sentence shown to people.
func (p Problem) String() string {
	var b strings.Builder
	if p.Field != "" {
		b.WriteString(p.Field)
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString("; ")
		b.WriteString(p.Fix)
	}
	return b.String()
}

// Problems are several of them, in the order found. As an error it is all of
// them, one a line; check [Problems.Err] to know whether there is one.
type Problems []Problem

// Error returns the problems one a line, each with place and rule where known.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
		if p.Rule != "" {
			lines[i] = fmt.Sprintf("rule %q: %s", p.Rule, lines[i])
		}
		if p.Line > 0 {
			lines[i] = fmt.Sprintf("%d:%d: %s", p.Line, p.Column, lines[i])
		}
	}
	return strings.Join(lines, "\n")
}

// Faults returns the problems that are no warnings.
func (ps Problems) Faults() Problems { return ps.only(false) }

// Warnings returns the problems that are only warnings.
func (ps Problems) Warnings() Problems { return ps.only(true) }

// Err returns the faults as an error, or nil when there are only warnings.
func (ps Problems) Err() error {
	if faults := ps.Faults(); len(faults) > 0 {
		return faults
	}
	return nil
}

func (ps Problems) only(warning bool) Problems {
	var out Problems
	for _, p := range ps {
		if p.Warning == warning {
			out = append(out, p)
		}
	}
	return out
}
