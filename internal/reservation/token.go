// Package reservation writes what is known of a reservation into a text that its
// client keeps, so that any pod can settle it: pods share nothing but the store.
//
// A check becomes one of reservations by [Token.Hold], and its token is filled by what it
// [Token.Took]; [Settle] makes the ops that settle it. Root and store do the asking.
// A [Token] goes through [Sealer.Seal] to text and through [Sealer.Open] back. With a
// secret the text tells nothing and cannot be made or changed by anybody without it;
// without one it can be read and made by whoever knows the form. Everything here is
// safe for concurrent use.
package reservation

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
)

// Bounds of a token. MaxText is what a client has to keep at most.
const (
	MaxText    = 16 << 10
	maxPlain   = MaxText*3/4 - tagBytes - 2
	maxEntries = 32
)

// Kind says how an entry is settled.
type Kind uint8

// The kinds. Their numbers are part of the token.
const (
	// Held is set aside in the store.
	Held Kind = 0
	// Told was admitted by a pod that tells the store of it itself: only what the cost
	// came to beyond that is added.
	Told Kind = 1
	// Reported is of a rule that only counts: all of the cost is added.
	Reported Kind = 2
)

// Token is what a reservation is settled by.
type Token struct {
	// ID is the digest of the caller's name for it, TTLMS how long it holds.
	ID     [16]byte
	TTLMS  int64
	Domain string
	// Entries are its buckets, 1 to 32, in the order of the check.
	Entries []Entry
}

// Entry is one bucket. Rule is the name of the rule in the names of its buckets, Key
// the encoded key, Cost what was reserved.
type Entry struct {
	Rule, Key string
	Cost      int64
	Kind      Kind
}

// Name returns the digest of the name by which a caller knows a reservation.
func Name(caller string) (id [16]byte) {
	sum := sha256.Sum256([]byte(caller))
	copy(id[:], sum[:])
	return id
}

// In returns what the reservation is called in one bucket: keys that have to share a
// bucket must not share it.
func In(id [16]byte, domain, rule, key string) (in [16]byte) {
	msg := append([]byte(nil), id[:]...)
	for _, part := range []string{domain, rule, key} {
		msg = appendText(msg, part)
	}
	sum := sha256.Sum256(msg)
	copy(in[:], sum[:])
	return in
}

// errForm says that a text is no token.
var errForm = errors.New("this is no reservation")

// errTooLong says that a token would be too long for its client.
var errTooLong = errors.New("the keys of the reservation are too long together: with the names of its rules they may have 12,000 bytes")

// appendPlain appends the token's fields. A key that is that of the entry before is
// written as "the same": most checks have one key.
func (t *Token) appendPlain(dst []byte) []byte {
	dst = append(dst, t.ID[:]...)
	dst = binary.AppendUvarint(dst, uint64(t.TTLMS))
	dst = appendText(dst, t.Domain)
	dst = append(dst, byte(len(t.Entries)))
	for i := range t.Entries {
		e := &t.Entries[i]
		same := i > 0 && e.Key == t.Entries[i-1].Key
		form := byte(e.Kind) << 1
		if same {
			form |= 1
		}
		dst = append(dst, form)
		dst = appendText(dst, e.Rule)
		if !same {
			dst = appendText(dst, e.Key)
		}
		dst = binary.AppendUvarint(dst, uint64(e.Cost))
	}
	return dst
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// parse reads what appendPlain wrote, and nothing else.
func parse(plain []byte) (t Token, err error) {
	if len(plain) > maxPlain {
		return Token{}, errForm
	}
	r := reader{rest: plain}
	copy(t.ID[:], r.bytes(len(t.ID)))
	t.TTLMS = r.number()
	t.Domain = r.text()
	n := r.byte()
	if n < 1 || n > maxEntries {
		return Token{}, errForm
	}
	for i := range int(n) {
		var e Entry
		form := r.byte()
		e.Kind, e.Rule = Kind(form>>1), r.text()
		switch same := form&1 == 1; {
		case e.Kind > Reported, same && i == 0:
			return Token{}, errForm
		case same:
			e.Key = t.Entries[i-1].Key
		default:
			e.Key = r.text()
		}
		e.Cost = r.number()
		if slices.ContainsFunc(t.Entries, func(o Entry) bool { return o.Rule == e.Rule && o.Key == e.Key }) {
			return Token{}, errForm // a bucket is settled once
		}
		t.Entries = append(t.Entries, e)
	}
	if r.bad || len(r.rest) > 0 {
		return Token{}, errForm
	}
	return t, nil
}

// reader reads fields off the front; after one that is not there it is bad.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads one up to 2^53, above which nothing counts exactly.
func (r *reader) number() int64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > 1<<53 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return int64(v)
}

func (r *reader) text() string {
	n := r.number()
	if n > int64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	return string(r.bytes(int(n)))
}
