package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Answer is what the feed says: everything, or what changed after a revision. Deleted
// rows are among the changes.
type Answer struct {
	// Revision is where the rows lead, Now the store's clock.
	Revision int64
	Now      time.Time
	// Hash is rulestore.Digest of the whole set at Revision, also where Whole is false.
	Hash string
	// Whole says that the rows are all there is, not changes.
	Whole bool

	Rules     []rulestore.Rule
	Overrides []rulestore.Override
	Resets    []rulestore.Reset
}

// Decode reads an answer row by row.
func (a *Answer) Decode(d *json.Decoder) error {
	var nowMS int64
	r := Reader{
		Field: func(name string) any {
			return map[string]any{"revision": &a.Revision, "now_ms": &nowMS, "hash": &a.Hash, "whole": &a.Whole}[name]
		},
		Rule:     func(r rulestore.Rule) error { a.Rules = append(a.Rules, r); return nil },
		Override: func(o rulestore.Override) error { a.Overrides = append(a.Overrides, o); return nil },
		Reset:    func(r rulestore.Reset) error { a.Resets = append(a.Resets, r); return nil },
	}
	err := r.Read(d)
	a.Now = fromMS(nowMS)
	return err
}

// Reader reads an object with rows and hands these over one by one, so that nobody
// needs the JSON of all of them at once. Each field may be nil.
type Reader struct {
	Rule     func(rulestore.Rule) error
	Override func(rulestore.Override) error
	Reset    func(rulestore.Reset) error
	// Field returns where to a field that is no list of rows goes; nil skips it.
	Field func(name string) any
}

// Read reads one object.
func (r *Reader) Read(d *json.Decoder) error {
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return broken(err, "begins with %v", start)
	}
	rule := "" // of the row before: its overrides stand together, and share its name
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "rules":
			err = each(d, func(row *ruleRow) error { return give(r.Rule, row.record()) })
		case "overrides":
			err = each(d, func(row *overrideRow) error {
				if row.Rule == rule {
					row.Rule = rule
				}
				rule = row.Rule
				return give(r.Override, row.record())
			})
		case "resets":
			err = each(d, func(row *resetRow) error { return give(r.Reset, row.record()) })
		default:
			err = r.field(d, name)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (r *Reader) field(d *json.Decoder, name json.Token) error {
	var to any
	if text, ok := name.(string); ok && r.Field != nil {
		to = r.Field(text)
	}
	if to == nil {
		to = new(json.RawMessage)
	}
	return d.Decode(to)
}

func give[T any](to func(T) error, row T) error {
	if to == nil {
		return nil
	}
	return to(row)
}

// each reads a list; null is an empty one.
func each[T any](d *json.Decoder, take func(*T) error) error {
	start, err := d.Token()
	if err == nil && start == nil {
		return nil
	}
	if err != nil || start != json.Delim('[') {
		return broken(err, "has %v for a list of rows", start)
	}
	for d.More() {
		var row T
		if err := d.Decode(&row); err != nil {
			return err
		}
		if err := take(&row); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

func broken(err error, what string, token json.Token) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("it "+what, token)
}
