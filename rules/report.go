package rules

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/spelling"
)

// report gathers the problems of one rule or override.
type report struct {
	rule string
	at   Position
	out  Problems
}

func (r *report) add(field, value, message, fix string) {
	r.out = append(r.out, Problem{
		Rule: r.rule, Field: field, Value: clip(value), Message: message, Fix: fix,
		Line: r.at.Line, Column: r.at.Column,
	})
}

func (r *report) warn(field, value, message, fix string) {
	r.add(field, value, message, fix)
	r.out[len(r.out)-1].Warning = true
}

// notYet refuses a field whose behaviour comes in a later release. Ignoring it
// would be a limit that is not what the file says.
func (r *report) notYet(field, fix string) {
	r.add(field, "", "not supported yet", fix)
}

// inRange checks a number against its bounds.
func (r *report) inRange(field string, v, lo, hi int64) bool {
	switch {
	case v < lo:
		r.add(field, num(v), num(v)+" is below "+num(lo), "raise it")
	case v > hi:
		r.add(field, num(v), num(v)+" is above "+num(hi), "lower it")
	default:
		return true
	}
	return false
}

// oneOf checks a word against the ones there are.
func (r *report) oneOf(field, word string, words ...string) bool {
	if slices.Contains(words, word) {
		return true
	}
	fix := "use one of these"
	if near := nearest(word, words); near != "" {
		fix = "did you mean " + quote(near) + "?"
	}
	r.add(field, word, quote(word)+" is none of "+strings.Join(words, ", "), fix)
	return false
}

// id checks an id or a domain: it becomes part of store keys and a metric label.
func (r *report) id(field, id string) {
	switch {
	case id == "":
		r.add(field, "", "missing", "give 1 to "+num(MaxIDBytes)+" of A-Z a-z 0-9 . _ -")
	case len(id) > MaxIDBytes:
		r.add(field, id, num(len(id))+" bytes are above "+num(MaxIDBytes), "shorten it")
	case strings.ContainsFunc(id, func(c rune) bool { return !isIDChar(c) }):
		r.add(field, id, quote(id)+" has characters other than A-Z a-z 0-9 . _ -", "rename it")
	}
}

// text checks a text that people wrote for people.
func (r *report) text(field, s string) {
	switch {
	case len(s) > MaxTextBytes:
		r.add(field, s, num(len(s))+" bytes are above "+num(MaxTextBytes), "shorten it")
	case !utf8.ValidString(s):
		r.add(field, s, "is not valid UTF-8", "save it as UTF-8")
	}
}

// name checks the name of an attribute.
func (r *report) name(field, s string) {
	switch {
	case s == "":
		r.add(field, "", "an attribute's name is empty", "name it")
	case len(s) > MaxNameBytes:
		r.add(field, s, num(len(s))+" bytes are above "+num(MaxNameBytes), "shorten it")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		r.add(field, s, quote(s)+" has blanks or control characters", "rename it")
	}
}

func isIDChar(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}

func num[T int | int64](v T) string { return strconv.FormatInt(int64(v), 10) }

// quote shows a value in a message, shortened and with control characters as
// escapes, so that a message is always one line.
func quote(s string) string { return strconv.Quote(clip(s)) }

// clip shortens a value: problems go into logs and answers, values come from
// outside.
func clip(s string) string { return spelling.Clip(s, 64) }

// nearest returns the known word that a misspelt one most likely stands for, or
// "" if none is near. Longer than any field's name is near none.
func nearest(word string, known []string) string {
	const longest = 64
	best, bestDistance := "", 3
	for _, k := range known {
		if len(word) > longest || len(k) > longest {
			continue // not measured: that would take long
		}
		if d := spelling.Distance(word, k); d < bestDistance && d < len(k) {
			best, bestDistance = k, d
		}
	}
	return best
}
