package wire

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Writer writes rows one by one, so that nobody needs the JSON of all of them at once:
// rules, then overrides, then resets. They are the last fields of an object, whose
// beginning is the caller's. The JSON has no newline in it, nor escapes that would
// change the bytes of a body. It keeps its first error for Close.
type Writer struct {
	out     io.Writer
	row     bytes.Buffer
	encoder *json.Encoder // into row
	list    list
	some    bool // the list has a row
	err     error
}

// list is which list a Writer is in.
type list int

const (
	none list = iota
	rules
	overrides
	resets
)

// begin is what stands before the first row of a list.
func (l list) begin() string {
	switch l {
	case none:
		return ""
	case rules:
		return `"rules":[`
	case overrides:
		return `],"overrides":[`
	case resets:
		return `],"resets":[`
	}
	return ""
}

// NewWriter returns a writer after the beginning of an object: its brace, and fields
// with a comma after each.
func NewWriter(out io.Writer) *Writer {
	w := &Writer{out: out}
	w.encoder = json.NewEncoder(&w.row)
	w.encoder.SetEscapeHTML(false)
	return w
}

// Rule writes a rule.
func (w *Writer) Rule(r *rulestore.Rule) { w.write(rules, ofRule(r)) }

// Override writes an override.
func (w *Writer) Override(o *rulestore.Override) { w.write(overrides, ofOverride(o)) }

// Reset writes a reset.
func (w *Writer) Reset(r *rulestore.Reset) { w.write(resets, ofReset(r)) }

// All writes all rows of lists.
func (w *Writer) All(list []rulestore.Rule, overrides []rulestore.Override, resets []rulestore.Reset) {
	for i := range list {
		w.Rule(&list[i])
	}
	for i := range overrides {
		w.Override(&overrides[i])
	}
	for i := range resets {
		w.Reset(&resets[i])
	}
}

// Close ends the object and returns the first error.
func (w *Writer) Close() error {
	w.enter(resets)
	w.raw("]}")
	return w.err
}

func (w *Writer) write(to list, row any) {
	w.enter(to)
	if w.err != nil {
		return
	}
	w.row.Reset()
	if w.some {
		w.row.WriteByte(',')
	}
	w.some = true
	if w.err = w.encoder.Encode(row); w.err == nil {
		_, w.err = w.out.Write(bytes.TrimSuffix(w.row.Bytes(), []byte{'\n'}))
	}
}

// enter goes on to a list.
func (w *Writer) enter(to list) {
	for w.list < to {
		w.list++
		w.some = false
		w.raw(w.list.begin())
	}
}

func (w *Writer) raw(text string) {
	if w.err == nil {
		_, w.err = io.WriteString(w.out, text)
	}
}
