package feed

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// maxEncoded bounds the encoded answers that a state keeps. Watchers ask from a
// few revisions only: where they were before the last change, and 0.
const maxEncoded = 64

// state is what is served between two changes. It does not change, but for the
// answers encoded so far.
type state struct {
	set rulestore.Set
	// rows changed after floor, in the order of revisions. Later states share them.
	rows  []row
	floor int64
	// replaced is closed when there is a next state.
	replaced chan struct{}

	mu      sync.Mutex       // guards encoded
	encoded map[int]*encoded // by the first row in it; -1 is the whole set
}

// row is one changed row, of one of three kinds.
type row struct {
	revision int64
	rule     *rulestore.Rule
	override *rulestore.Override
	reset    *rulestore.Reset
}

// encoded is the end of an answer, made by who needs it first.
type encoded struct {
	once sync.Once
	json []byte
	err  error
}

// newState serves a set of which no changes are known.
func newState(set rulestore.Set) *state {
	set.Sort()
	return &state{set: set, floor: set.Revision, replaced: make(chan struct{}), encoded: map[int]*encoded{}}
}

// after returns the state that changes lead to. It remembers about keep rows: all
// rows of one revision, or none.
func (s *state) after(c rulestore.Changes, keep int) *state {
	next := newState(wire.Merge(s.set, c))
	next.rows, next.floor = append(s.rows, rowsOf(c)...), s.floor //nolint:gocritic // the newest state alone appends; older ones end before
	if drop := len(next.rows) - keep; drop > 0 {
		next.floor = next.rows[drop-1].revision
		next.rows = next.rows[next.from(next.floor):]
	}
	return next
}

// rowsOf returns changed rows in the order of revisions.
func rowsOf(c rulestore.Changes) []row {
	rows := make([]row, 0, len(c.Rules)+len(c.Overrides)+len(c.Resets))
	for i := range c.Rules {
		rows = append(rows, row{revision: c.Rules[i].Revision, rule: &c.Rules[i]})
	}
	for i := range c.Overrides {
		rows = append(rows, row{revision: c.Overrides[i].Revision, override: &c.Overrides[i]})
	}
	for i := range c.Resets {
		rows = append(rows, row{revision: c.Resets[i].Revision, reset: &c.Resets[i]})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.revision, b.revision) })
	return rows
}

// from returns the first row after a revision.
func (s *state) from(revision int64) int {
	return sort.Search(len(s.rows), func(i int) bool { return s.rows[i].revision > revision })
}

// since returns what changed after a revision that is not below floor.
func (s *state) since(revision int64) rulestore.Changes { return s.changes(s.from(revision)) }

// changes returns the rows from one on; of a row that changed again, the last.
func (s *state) changes(from int) rulestore.Changes {
	c := rulestore.Changes{Revision: s.set.Revision, Hash: s.set.Hash}
	rules, overrides := map[string]int{}, map[rulestore.OverrideName]int{}
	for i, row := range s.rows[from:] {
		switch {
		case row.rule != nil:
			rules[row.rule.ID] = i
		case row.override != nil:
			overrides[rulestore.OverrideName{Rule: row.override.Rule, ID: row.override.ID}] = i
		}
	}
	for i, row := range s.rows[from:] {
		switch {
		case row.reset != nil:
			c.Resets = append(c.Resets, *row.reset)
		case row.rule != nil && rules[row.rule.ID] == i:
			c.Rules = append(c.Rules, *row.rule)
		case row.override != nil && overrides[rulestore.OverrideName{Rule: row.override.Rule, ID: row.override.ID}] == i:
			c.Overrides = append(c.Overrides, *row.override)
		}
	}
	return c
}

// known reports whether it is remembered what changed after a revision.
func (s *state) known(revision int64) bool {
	return revision > 0 && revision >= s.floor && revision <= s.set.Revision
}

// answer is the JSON for who asks since a revision, from its hash on: what stands
// before that is another each time.
func (s *state) answer(since int64) ([]byte, error) {
	from := -1
	if s.known(since) {
		from = s.from(since)
	}
	s.mu.Lock()
	e := s.encoded[from]
	if e == nil {
		e = new(encoded)
		if len(s.encoded) < maxEncoded {
			s.encoded[from] = e
		}
	}
	s.mu.Unlock()
	e.once.Do(func() { e.json, e.err = s.encode(from) })
	return e.json, e.err
}

// encode makes it: with the whole set go all resets that are remembered, since
// whoever gets it may have missed them.
func (s *state) encode(from int) ([]byte, error) {
	c := s.changes(max(from, 0))
	if from < 0 {
		c.Rules, c.Overrides = s.set.Rules, s.set.Overrides
	}
	out := bytes.NewBufferString(`{"hash":"` + s.set.Hash + `","whole":` + strconv.FormatBool(from < 0) + `,`)
	rows := wire.NewWriter(out)
	rows.All(c.Rules, c.Overrides, c.Resets)
	err := rows.Close()
	return out.Bytes(), err
}
