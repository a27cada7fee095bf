package envoyconfig

import (
	"strings"

	"github.com/tallygate/tallygate/rules"
)

// Problem is one thing wrong, or doubtful, in a file.
type Problem struct {
	Place
	// Field is the key as written, "" where the problem is with the whole.
	Field string
	// Message says what is wrong, Fix what to do.
	Message, Fix string
}

// String returns "file:line:column: field: message; fix".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.Place.String() + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Problems are several of them, in the order of the files. As an error it is all of
// them, one a line.
type Problems []Problem

// Error returns the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// rule returns the problem as one of a rule set, which knows no files.
func (p Problem) rule(warning bool) rules.Problem {
	message := p.Message
	if p.File != "" {
		message = p.Place.String() + ": " + message
	}
	return rules.Problem{Field: p.Field, Message: message, Fix: p.Fix, Line: p.Line, Column: p.Column, Warning: warning}
}
