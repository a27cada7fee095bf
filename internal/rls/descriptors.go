package rls

import (
	"math"
	"strconv"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/envoyconfig"
)

// call is everything one request needs, reused.
type call struct {
	sets       []tallygate.Set
	limits     []override // of the sets; zero where the rules decide
	attributes []map[string]string
	verdict    tallygate.Verdict
	own        tallygate.Verdict // of one descriptor, where each is decided by itself
	imported   bool              // the domain's rules ask for the path of keys
	anyway     bool              // hits count whatever is answered
	path       []byte
}

// read makes a set of each descriptor.
func (c *call) read(overrides *overrides, paths *paths, request *rlsv3.RateLimitRequest) error {
	descriptors := request.GetDescriptors()
	switch n := len(descriptors); {
	case request.GetDomain() == "":
		return invalid("domain", "is empty; name the domain of the rules to use")
	case len(request.GetDomain()) > maxNameBytes:
		return invalid("domain", "has "+strconv.Itoa(len(request.GetDomain()))+" bytes, at most "+strconv.Itoa(maxNameBytes))
	case n == 0:
		return invalid("descriptors", "is empty; a request needs at least one")
	case n > maxDescriptors:
		return invalid("descriptors", "has "+strconv.Itoa(n)+" items, at most "+strconv.Itoa(maxDescriptors))
	}
	for len(c.attributes) < len(descriptors) {
		c.attributes = append(c.attributes, map[string]string{})
	}
	for i, d := range descriptors {
		c.sets = append(c.sets, tallygate.Set{Attributes: c.attributes[i]}) // first, for forget
		c.limits = append(c.limits, override{})
		set := &c.sets[i]
		if err := fill(set.Attributes, d.GetEntries(), i); err != nil {
			return err
		}
		if c.imported {
			c.importedAs(set.Attributes, d.GetEntries(), paths)
		}
		hits(set, d, request.GetHitsAddend())
		if o := d.GetLimit(); o != nil {
			k, err := overrideOf(request.GetDomain(), o, i)
			if err != nil {
				return err
			}
			if set.Own, err = overrides.bind(k, d.GetEntries()); err != nil {
				return err
			}
			c.limits[i] = k
		}
	}
	return nil
}

// check is the check of some sets.
func (c *call) check(domain string, sets []tallygate.Set) tallygate.Check {
	check := tallygate.Check{Domain: domain, Sets: sets, CountDenied: c.anyway}
	if c.imported {
		check.Alternatives = envoyconfig.AttrPath
	}
	return check
}

// forget clears what a request left, so that its text is not held.
func (c *call) forget() {
	for i := range c.sets {
		clear(c.attributes[i])
	}
	clear(c.sets)
	clear(c.limits)
	c.sets, c.limits = c.sets[:0], c.limits[:0]
}

// fill makes attributes of a descriptor's entries. A key that comes again, as
// generic_key does when it is not named, is the attribute key#2, then key#3: no entry
// is lost, and rules can ask for each.
func fill(attributes map[string]string, entries []*commonv3.RateLimitDescriptor_Entry, at int) error {
	if len(entries) > maxEntries {
		return invalid(field(at, "entries"), "has "+strconv.Itoa(len(entries))+" items, at most "+strconv.Itoa(maxEntries))
	}
	taken := func(name string) bool { _, ok := attributes[name]; return ok }
	for i, e := range entries {
		if e.GetKey() == "" {
			return invalid(field(at, "entries/"+strconv.Itoa(i)+"/key"), "is empty")
		}
		attributes[envoyconfig.AttributeName(e.GetKey(), taken)] = e.GetValue()
	}
	if address, ok := attributes[envoyAddress]; ok {
		if _, given := attributes[ipAttribute]; !given {
			attributes[ipAttribute] = address
		}
	}
	return nil
}

// importedAs adds what imported rules ask for.
func (c *call) importedAs(attributes map[string]string, entries []*commonv3.RateLimitDescriptor_Entry, paths *paths) {
	c.path = c.path[:0]
	for _, e := range entries {
		c.path = envoyconfig.AppendPath(c.path, e.GetKey())
	}
	for name, value := range attributes {
		if value == "" {
			attributes[name] = envoyconfig.Empty
		}
	}
	attributes[envoyconfig.AttrPath] = paths.of(c.path)
}

// Envoy names a client's address by its action, rules by what they count.
const (
	envoyAddress = "remote_address"
	ipAttribute  = "ip"
)

// hits says what a descriptor spends: its own number if it has one, of which 0 looks,
// else the request's, of which 0 means 1.
func hits(set *tallygate.Set, d *commonv3.RateLimitDescriptor, addend uint32) {
	own := d.GetHitsAddend()
	set.Cost = int64(max(addend, 1))
	if own != nil {
		set.Cost = int64(min(own.GetValue(), math.MaxInt64))
	}
	switch {
	case set.Cost == 0:
		set.Look = true
	case d.GetIsNegativeHits():
		set.Back = true
	}
}

// field is the place of a field in descriptor i.
func field(i int, name string) string { return "descriptors/" + strconv.Itoa(i) + "/" + name }
