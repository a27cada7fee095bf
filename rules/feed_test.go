package rules_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// feed answers with what a test puts there, once.
type feed struct {
	source
	updates []rules.Update
	err     error
}

func (f *feed) Next(context.Context) (rules.Update, error) {
	if f.err != nil || len(f.updates) == 0 {
		return rules.Update{}, f.err
	}
	next := f.updates[0]
	f.updates = f.updates[1:]
	return next, nil
}

func TestWatcherTakesChanges(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("a", 1, 1), bucket("b", 2, 2))
	src := &feed{updates: []rules.Update{{Set: &set, Version: rules.Version{Revision: 10}}}}
	changes := 0
	w := mustWatcher(t, rules.WatcherConfig{Source: src, Every: time.Hour, OnChange: func(*rules.Snapshot, rules.Problems) { changes++ }})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	reload := func(updates ...rules.Update) {
		t.Helper()
		src.updates = updates
		if err := w.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reload() // nothing changed
	first := w.Snapshot()
	next := mustSet(t, bucket("b", 3, 3), override("c", "k", `'rate':1`))
	reload(rules.Update{Delta: &rules.Delta{Rules: next.Rules, Overrides: next.Overrides}, Version: rules.Version{Revision: 11}})
	if effective(w.Snapshot(), "a", "x", start) != "1/1@20" || effective(w.Snapshot(), "b", "x", start) != "3/3@22" || effective(first, "b", "x", start) != "2/2@20" {
		t.Errorf("a has %s, b %s, b before %s", effective(w.Snapshot(), "a", "x", start), effective(w.Snapshot(), "b", "x", start), effective(first, "b", "x", start))
	}
	if got := lines(w.Problems()); got != `rule: there is no rule "c"; add the rule or remove the override` {
		t.Errorf("got problems %s", got)
	}
	src.err = errors.New("away")
	if err := w.Reload(t.Context()); err == nil || w.Snapshot().Revision() != 11 {
		t.Errorf("got %v, revision %d", err, w.Snapshot().Revision())
	}
	src.err = nil
	// What is still wrong is said with each change, and what is mended no more.
	reload(rules.Update{Delta: &rules.Delta{Gone: []rules.Ref{{Rule: "a"}}}, Version: rules.Version{Revision: 12}})
	if len(w.Problems()) != 1 || w.Snapshot().Rule("a") != nil || len(w.Snapshot().Rules()) != 1 {
		t.Errorf("got %v, %d rules", w.Problems(), len(w.Snapshot().Rules()))
	}
	more := mustSet(t, bucket("c", 4, 4))
	reload(rules.Update{Delta: &rules.Delta{Rules: more.Rules}, Version: rules.Version{Revision: 13}})
	if len(w.Problems()) != 0 || effective(w.Snapshot(), "c", "k", start) != "1/4@26" {
		t.Errorf("got %v, k has %s", w.Problems(), effective(w.Snapshot(), "c", "k", start))
	}
	if changes != 4 || src.loads != 0 {
		t.Errorf("%d changes, %d loads; want 4 and none", changes, src.loads)
	}
}
