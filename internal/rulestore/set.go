package rulestore

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"

	"github.com/tallygate/tallygate/rules"
)

// Digest returns the hash of rules and overrides in the order of a [Set].
func Digest(list []Rule, overrides []Override) string {
	d := digest{sha256.New()}
	for _, r := range list {
		d.text("r", r.ID, string(r.Live), string(r.Candidate.Body), string(r.Candidate.Stage))
		d.number(r.Version, r.Revision, r.LiveVersion, r.Previous, int64(r.Candidate.Percent), r.Candidate.Since.UnixMilli())
	}
	for _, o := range overrides {
		d.text("o", o.Rule, o.ID, string(o.Body))
		d.number(o.Version, o.Revision)
	}
	return hex.EncodeToString(d.Sum(nil))
}

type digest struct{ hash.Hash }

// text adds texts, each after its length, so that none can pass for another.
func (d digest) text(texts ...string) {
	for _, s := range texts {
		d.number(int64(len(s)))
		_, _ = d.Write([]byte(s)) // never fails
	}
}

func (d digest) number(numbers ...int64) {
	var b [8]byte
	for _, n := range numbers {
		binary.BigEndian.PutUint64(b[:], uint64(n))
		_, _ = d.Write(b[:])
	}
}

// Live returns the set that pods enforce: live rules and overrides, candidates
// aside. A row that cannot be read is skipped alone, named in the problems and
// listed in Unread, so that its last good version stays in force.
func (s *Set) Live() (rules.Set, rules.Problems) {
	var out rules.Set
	var problems rules.Problems
	for _, row := range s.Rules {
		rule, faults := rules.ParseRule(row.Live)
		if len(faults) == 0 && rule.ID != row.ID {
			faults = rules.Problems{{Field: "id", Value: rule.ID, Message: "the body in the database is of rule " + strconv.Quote(rule.ID), Fix: "put the rule again"}}
		}
		if len(faults) == 0 {
			out.Rules = append(out.Rules, rule)
			continue
		}
		problems = append(problems, named(faults, row.ID, "body")...)
		out.Unread = append(out.Unread, rules.Ref{Rule: row.ID})
	}
	for _, row := range s.Overrides {
		o, faults := rules.ParseOverride(row.Body)
		if len(faults) == 0 && (o.Rule != row.Rule || !slices.Equal(o.Key, row.Key)) {
			faults = rules.Problems{{Field: "key", Message: "the body in the database is of another rule or key", Fix: "put the override again"}}
		}
		if len(faults) == 0 {
			out.Overrides = append(out.Overrides, o)
			continue
		}
		problems = append(problems, named(faults, row.Rule, "override "+row.ID)...)
		if len(row.Key) > 0 {
			out.Unread = append(out.Unread, rules.Ref{Rule: row.Rule, Key: row.Key})
		}
	}
	return out, problems
}

// named gives faults the row they are of.
func named(faults rules.Problems, rule, field string) rules.Problems {
	for i := range faults {
		faults[i].Rule = rule
		if faults[i].Field == "" {
			faults[i].Field = field
		}
	}
	return faults
}

// After returns the set that changes make of this one. It shares no slice with s.
func (s *Set) After(c Changes) Set {
	out := Set{Revision: c.Revision}
	byID := make(map[string]Rule, len(s.Rules))
	for _, r := range s.Rules {
		byID[r.ID] = r
	}
	for _, r := range c.Rules {
		byID[r.ID] = r
	}
	for _, r := range byID {
		if !r.Deleted {
			out.Rules = append(out.Rules, r)
		}
	}
	byName := make(map[OverrideName]Override, len(s.Overrides))
	for _, o := range s.Overrides {
		byName[OverrideName{o.Rule, o.ID}] = o
	}
	for _, o := range c.Overrides {
		byName[OverrideName{o.Rule, o.ID}] = o
	}
	for _, o := range byName {
		if !o.Deleted {
			out.Overrides = append(out.Overrides, o)
		}
	}
	out.Sort()
	out.Hash = Digest(out.Rules, out.Overrides)
	return out
}

// Sort puts a set into its order, which no database's collation changes.
func (s *Set) Sort() {
	slices.SortFunc(s.Rules, func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Overrides, func(a, b Override) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID))
	})
}
