package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// tagBytes is how much of the hash a tag keeps: 128 bits. Two of 10^12 keys
// share a tag with a chance below 10^-14, and nobody can make two that do.
const tagBytes = 16

// A Hasher names keys by a keyed hash. API keys and addresses then never stand
// in a store, a log or a metric, and without the Hasher's own key nobody can
// test a guess against a name. All pods of a fleet need the same key.
type Hasher struct {
	// secret is the digest of the configured key: of one length, whatever the
	// key's, so that the hashed message has only one reading.
	secret [sha256.Size]byte
}

// NewHasher returns the Hasher of that key. An empty key is legal: names are
// then only as secret as the values are hard to guess.
func NewHasher(key []byte) *Hasher {
	return &Hasher{secret: sha256.Sum256(key)}
}

// AppendTag appends 22 characters of base64url: the first 128 bits of
// SHA-256(secret ‖ length of domain ‖ domain ‖ key). It allocates only for keys
// longer than common ones.
func (h *Hasher) AppendTag(dst []byte, domain, key string) []byte {
	sum := h.sum(domain, key)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:tagBytes])
}

// Redact returns 8 hex digits that stand for a key in logs: enough to see that
// two lines speak of the same caller.
func (h *Hasher) Redact(key string) string {
	sum := h.sum("", key)
	return hex.EncodeToString(sum[:4])
}

func (h *Hasher) sum(domain, key string) [sha256.Size]byte {
	var buf [256]byte // on the stack; append moves longer messages to the heap
	msg := append(buf[:0], h.secret[:]...)
	msg = binary.BigEndian.AppendUint32(msg, uint32(len(domain)))
	msg = append(msg, domain...)
	msg = append(msg, key...)
	return sha256.Sum256(msg)
}

// Plain names keys so that people can read them, for identities that are no
// secret (account ids). Its output holds only A-Z a-z 0-9 . _ - % and /, so no
// value can open or close a hash tag or split a store key, and every name
// decodes to one domain and key.
type Plain struct{}

// The first part of names that are not the plain list of a key's values. No
// escape reads so: escapes are % and two upper-case hex digits.
const (
	plainAnonymous = "%ip/"
	plainRaw       = "%raw/"
)

// AppendTag appends domain and the key's values, joined by "/", with every other
// byte than A-Z a-z 0-9 . _ - written as %XX.
func (Plain) AppendTag(dst []byte, domain, key string) []byte {
	dst = appendEscaped(dst, domain)
	dst = append(dst, '/')
	if key == "" || key[0] != markByte[0] {
		return appendEscaped(dst, key) // the common case, without a slice of parts
	}
	parts, anonymous, ok := Parts(key)
	switch {
	case !ok:
		return appendEscaped(append(dst, plainRaw...), key)
	case anonymous:
		return appendEscaped(append(dst, plainAnonymous...), parts[0])
	}
	for i, p := range parts {
		if i > 0 {
			dst = append(dst, '/')
		}
		dst = appendEscaped(dst, p)
	}
	return dst
}

// Redact returns the readable name without a domain: plain identities are no
// secret.
func (p Plain) Redact(key string) string {
	return string(p.AppendTag(nil, "", key)[1:])
}

func appendEscaped(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; isPlain(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// isPlain reports whether c may stand for itself in a name.
func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}
