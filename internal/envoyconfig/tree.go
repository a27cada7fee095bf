package envoyconfig

import (
	"fmt"
	"strconv"
	"strings"
)

// Place is where something stands; lines and columns count from 1. The zero Place is
// nowhere.
type Place struct {
	File         string
	Line, Column int
}

// String returns "file:line:column".
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// Tree is the configuration of all files, as their service would load it.
type Tree struct {
	// Domains are in the order in which the files name them first.
	Domains []*Domain

	byName map[string]*Domain
	lines  []line
	// skipped are the files of the directory that were not read.
	skipped []string
}

// Domain is one domain.
type Domain struct {
	Name        string
	At          Place
	Descriptors []*Descriptor

	level *level
}

// Descriptor is one node of the tree.
type Descriptor struct {
	Key, Value string
	// Limit is nil where the node only routes.
	Limit       *Limit
	Descriptors []*Descriptor

	ShadowMode, QuotaMode, DetailedMetric, ValueToMetric, ShareThreshold bool

	At Place

	parent *Descriptor
	domain *Domain
	level  *level
}

// Limit is a rate_limit block.
type Limit struct {
	RequestsPerUnit uint32
	Unit            Unit
	Unlimited       bool
	Name            string
	Replaces        []string

	At Place
	// given says that requests_per_unit is written, also as 0.
	given bool
}

// Unit is a unit of time; the zero value is none.
type Unit uint8

// The units.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// Seconds returns the unit's length as their service counts it: a month is 30 days, a
// year 365.
func (u Unit) Seconds() int64 {
	const day = 86_400
	switch u {
	case Second:
		return 1
	case Minute:
		return 60
	case Hour:
		return 3_600
	case Day:
		return day
	case Week:
		return 7 * day
	case Month:
		return 30 * day
	case Year:
		return 365 * day
	default:
		return 0
	}
}

// String returns the unit's name.
func (u Unit) String() string {
	if u == 0 || int(u) > len(unitNames()) {
		return fmt.Sprintf("unit(%d)", uint8(u))
	}
	return unitNames()[u-1]
}

func unitNames() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// parseUnit reads a unit in any case.
func parseUnit(s string) (Unit, bool) {
	for i, name := range unitNames() {
		if strings.EqualFold(s, name) {
			return Unit(i + 1), true
		}
	}
	return 0, false
}

// composite is the text by which a node is found: its key, or key_value.
func (d *Descriptor) composite() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

// wildcard reports whether the node is found by pattern.
func (d *Descriptor) wildcard() bool { return strings.Contains(d.composite(), "*") }

// exactly reports whether the node takes one value.
func (d *Descriptor) exactly() bool { return d.Value != "" && !d.wildcard() }

// covering reports whether the node takes every value of its key.
func (d *Descriptor) covering() bool {
	return !strings.Contains(d.Key, "*") && strings.Trim(d.Value, "*") == ""
}

// path returns the nodes from the top to d.
func (d *Descriptor) path() []*Descriptor {
	var out []*Descriptor
	if d.parent != nil {
		out = d.parent.path()
	}
	return append(out, d)
}

// String returns the way to the node for people: "database=users/host".
func (d *Descriptor) String() string {
	var b strings.Builder
	for i, n := range d.path() {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(n.Key)
		if n.Value != "" {
			b.WriteString("=" + n.Value)
		}
	}
	return b.String()
}

// each visits the nodes, parents first, in file order.
func each(nodes []*Descriptor, visit func(*Descriptor)) {
	for _, n := range nodes {
		visit(n)
		each(n.Descriptors, visit)
	}
}

// line is one key of one map in a file.
type line struct {
	Place
	field, value string
	standing     standing
	domain       *Domain
	node         *Descriptor // nil at the top
}

// standing says what comes of a line in their service.
type standing uint8

const (
	// misplaced: the key is accepted there and never looked at. The zero value is a key
	// that is read where it stands.
	misplaced standing = iota + 1
	// inMetadata: the key is part of a node's metadata.
	inMetadata
)
