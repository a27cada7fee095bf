package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// maxChecks bounds a batch, so that one request cannot keep the pod busy for long.
const maxChecks = 1000

// maxEntries bounds a check, as the limiter does: no more need be read.
const maxEntries = store.MaxOps

// maxAttributes bounds the facts of one request. No rule asks for more than 16;
// without a bound one request could make the reused map large for good.
const maxAttributes = 256

// request is one decoded body: a check, or a batch of undecoded ones. It is
// reused; nothing in it outlives the exchange but the strings.
type request struct {
	check tallygate.Check
	// batch says that the body held checks, whose texts are items.
	batch bool
	items [][]byte

	scan       scanner
	entries    []tallygate.Entry
	keys       []string
	attributes map[string]string

	// id and ttl are of a reservation to be made, reservation and costs of one to be
	// settled.
	id          string
	ttl         time.Duration
	reservation tallygate.Reservation
	costs       map[string]int64
}

// form is what else than a check an object may hold.
type form uint8

const (
	single    form = iota // nothing
	whole                 // or a batch instead
	reserving             // an id and a time
)

// The members of a check and of an entry, as bits of a set of those seen.
const (
	seenDomain = 1 << iota
	seenEntries
	seenAttributes
	seenCost
	seenChecks
	seenRule
	seenKey
)

// forget drops what the last body left, so that a pooled request holds no keys.
func (q *request) forget() {
	clear(q.entries[:cap(q.entries)])
	clear(q.keys[:cap(q.keys)])
	clear(q.attributes)
	clear(q.items)
	q.check = tallygate.Check{}
	q.id, q.reservation, q.costs = "", "", nil
}

// decode reads a whole body.
func (q *request) decode(body []byte) error {
	q.scan.reset(body)
	seen, err := q.decodeCheck(whole)
	if err != nil {
		return err
	}
	q.batch = seen&seenChecks != 0
	if q.batch && seen != seenChecks {
		return fault("/checks", "checks stands alone: domain, entries, attributes and cost belong in each of them")
	}
	return q.scan.end()
}

// decodeItem reads one check of a batch.
func (q *request) decodeItem(item []byte) error {
	q.scan.reset(item)
	_, err := q.decodeCheck(single)
	return err
}

// decodeCheck reads the object of a check and returns which members it has.
func (q *request) decodeCheck(as form) (seen uint, err error) {
	q.check = tallygate.Check{}
	err = q.scan.object(func(name []byte) error {
		switch string(name) {
		case "domain":
			return q.once(&seen, seenDomain, "domain", q.decodeDomain)
		case "entries":
			return q.once(&seen, seenEntries, "entries", q.decodeEntries)
		case "attributes":
			return q.once(&seen, seenAttributes, "attributes", q.decodeAttributes)
		case "cost":
			return q.once(&seen, seenCost, "cost", q.decodeCost)
		case "checks":
			if as == whole {
				return q.once(&seen, seenChecks, "checks", q.decodeChecks)
			}
		case "id":
			if as == reserving {
				return q.once(&seen, seenID, "id", q.decodeID)
			}
		case "ttl_ms":
			if as == reserving {
				return q.once(&seen, seenTTL, "ttl_ms", q.decodeTTL)
			}
		}
		if as == reserving {
			return unknown(name, "domain, entries, attributes, cost, id and ttl_ms")
		}
		return unknown(name, "domain, entries, attributes and cost, or checks")
	})
	switch {
	case err != nil:
		return seen, err
	case seen&seenChecks != 0:
		return seen, nil
	case seen&(seenEntries|seenAttributes) == 0:
		return seen, fault("", "a check needs entries or attributes")
	case seen&seenEntries != 0 && seen&seenAttributes != 0:
		return seen, fault("/attributes", "a check has entries or attributes, not both")
	case seen&seenEntries != 0 && seen&seenCost != 0:
		return seen, fault("/cost", "with entries, each entry has its own cost")
	}
	return seen, nil
}

// once reads a member that may stand only once, and puts its name before the
// field of an error.
func (*request) once(seen *uint, bit uint, name string, read func() error) error {
	if *seen&bit != 0 {
		return within(name, fault("", "%s stands there twice", name))
	}
	*seen |= bit
	return within(name, read())
}

func (q *request) decodeDomain() error {
	domain, err := q.text()
	if err == nil && domain == "" {
		return fault("", "the domain is empty; leave it out for the default one")
	}
	q.check.Domain = domain
	return err
}

func (q *request) decodeEntries() error {
	q.entries, q.keys = q.entries[:0], q.keys[:0]
	err := q.array(func(i int) error {
		if i == maxEntries {
			return fault("", "more than %d entries", maxEntries)
		}
		return within(strconv.Itoa(i), q.decodeEntry())
	})
	q.check.Entries = q.entries
	if err == nil && len(q.entries) == 0 {
		return fault("", "entries is empty")
	}
	return err
}

func (q *request) decodeEntry() error {
	var entry tallygate.Entry
	var seen uint
	err := q.scan.object(func(name []byte) error {
		switch string(name) {
		case "rule":
			return q.once(&seen, seenRule, "rule", func() (err error) { entry.Rule, err = q.text(); return err })
		case "key":
			return q.once(&seen, seenKey, "key", func() (err error) { entry.Key, err = q.key(); return err })
		case "cost":
			return q.once(&seen, seenCost, "cost", func() (err error) { entry.Cost, entry.Look, err = q.cost(); return err })
		default:
			return unknown(name, "rule, key and cost")
		}
	})
	if err == nil && seen&seenRule == 0 {
		return fault("/rule", "an entry needs a rule")
	}
	q.entries = append(q.entries, entry)
	return err
}

// key reads a key: a string or a list of them.
func (q *request) key() ([]string, error) {
	start := len(q.keys)
	var err error
	if q.scan.peek() == '[' {
		err = q.scan.array(func(i int) error {
			if i == rules.MaxIdentity {
				return fault("", "more than %d key values", rules.MaxIdentity)
			}
			return within(strconv.Itoa(i), q.keyPart())
		})
	} else {
		err = q.keyPart()
	}
	return q.keys[start:len(q.keys):len(q.keys)], err
}

func (q *request) keyPart() error {
	part, err := q.text()
	q.keys = append(q.keys, part)
	return err
}

func (q *request) decodeAttributes() error {
	if q.attributes == nil {
		q.attributes = make(map[string]string)
	}
	clear(q.attributes)
	q.check.Attributes = q.attributes
	if q.scan.peek() != '{' {
		return fault("", "attributes is an object of names and strings")
	}
	return q.scan.object(func(name []byte) error {
		attribute := string(name)
		if attribute == "" {
			return fault("", "an attribute's name is empty")
		}
		if _, twice := q.attributes[attribute]; twice {
			return within(shorten(name), fault("", "attribute %q stands there twice", shorten(name)))
		}
		if len(q.attributes) == maxAttributes {
			return fault("", "more than %d attributes", maxAttributes)
		}
		value, err := q.text()
		if err != nil {
			return within(shorten([]byte(attribute)), err)
		}
		q.attributes[attribute] = value
		return nil
	})
}

func (q *request) decodeCost() (err error) {
	q.check.Cost, q.check.Look, err = q.cost()
	return err
}

func (q *request) decodeChecks() error {
	q.items = q.items[:0]
	err := q.array(func(i int) error {
		if i == maxChecks {
			return &tallygate.Error{Code: tallygate.CodeTooLarge, Message: fmt.Sprintf("more than %d checks", maxChecks)}
		}
		item, err := q.scan.skip(1)
		q.items = append(q.items, item)
		return err
	})
	if err == nil && len(q.items) == 0 {
		return fault("", "checks is empty")
	}
	return err
}

// array reads a list, naming what else was there.
func (q *request) array(element func(i int) error) error {
	if q.scan.peek() != '[' {
		return fault("", "this is a list")
	}
	return q.scan.array(element)
}

// text reads a string that stays valid.
func (q *request) text() (string, error) {
	if q.scan.peek() != '"' {
		return "", q.wrong(tallygate.CodeBadRequest, "a string")
	}
	text, err := q.scan.string()
	return string(text), err
}

// cost reads a cost: a whole number of tokens, digits only, since 1.0 and 1e3
// already mean different things to different writers of JSON.
func (q *request) cost() (cost int64, look bool, err error) {
	if c := q.scan.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, false, q.wrong(tallygate.CodeInvalidCost, fmt.Sprintf("a whole number of tokens from 0 to %d", limit.MaxCost))
	}
	text, err := q.scan.number()
	if err != nil {
		return 0, false, err
	}
	cost, parse := strconv.ParseInt(string(text), 10, 64)
	if parse != nil || cost < 0 || cost > limit.MaxCost || text[0] == '-' {
		return 0, false, &tallygate.Error{
			Code:    tallygate.CodeInvalidCost,
			Message: fmt.Sprintf("cost %s is no whole number of tokens from 0 to %d", shorten(text), limit.MaxCost),
		}
	}
	return cost, cost == 0, nil
}

// wrong says what a value should have been, and shows it. A value that is not
// even JSON is malformed.
func (q *request) wrong(code tallygate.Code, wanted string) error {
	value, err := q.scan.skip(1)
	if err != nil {
		return err
	}
	return &tallygate.Error{Code: code, Message: fmt.Sprintf("%s is not %s", shorten(value), wanted)}
}

// shorten makes text fit for a message.
func shorten(text []byte) string {
	const enough = 40
	if len(text) > enough {
		return string(text[:enough]) + "…"
	}
	return string(text)
}

func fault(field, format string, args ...any) error {
	return &tallygate.Error{Code: tallygate.CodeBadRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

func unknown(name []byte, known string) error {
	return within(shorten(name), fault("", "unknown field %q; known are %s", shorten(name), known))
}
