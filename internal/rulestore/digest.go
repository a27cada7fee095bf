package rulestore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math/bits"
)

// Sum is a digest of rows that does not ask for their order: the sum of theirs, modulo
// 2^256, so that a row that changes is taken out and put in. It finds what differs by
// accident or by hand, not what somebody made to look alike.
type Sum [4]uint64

// Digest returns the hash of rules and overrides, in any order.
func Digest(list []Rule, overrides []Override) string {
	var sum Sum
	for i := range list {
		sum = sum.Plus(list[i].Sum())
	}
	for i := range overrides {
		sum = sum.Plus(overrides[i].Sum())
	}
	return sum.String()
}

// Plus returns the sum with another one put in.
func (s Sum) Plus(o Sum) Sum {
	var carry uint64
	for i := range s {
		s[i], carry = bits.Add64(s[i], o[i], carry)
	}
	return s
}

// Minus returns the sum with another one taken out.
func (s Sum) Minus(o Sum) Sum {
	var borrow uint64
	for i := range s {
		s[i], borrow = bits.Sub64(s[i], o[i], borrow)
	}
	return s
}

// String returns the sum in 64 hex digits.
func (s Sum) String() string {
	var b [sha256.Size]byte
	for i, word := range s {
		binary.LittleEndian.PutUint64(b[8*i:], word)
	}
	return hex.EncodeToString(b[:])
}

// Sum returns the digest of one rule.
func (r *Rule) Sum() Sum {
	d := digest{sha256.New()}
	d.text("r", r.ID, string(r.Live), string(r.Candidate.Body), string(r.Candidate.Stage))
	d.number(r.Version, r.Revision, r.LiveVersion, r.Previous, int64(r.Candidate.Percent), r.Candidate.Since.UnixMilli())
	return d.sum()
}

// Sum returns the digest of one override.
func (o *Override) Sum() Sum {
	d := digest{sha256.New()}
	d.text("o", o.Rule, o.ID, string(o.Body))
	d.number(o.Version, o.Revision)
	return d.sum()
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

func (d digest) sum() (out Sum) {
	b := d.Sum(nil)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}
