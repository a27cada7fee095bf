package reservation

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// tagBytes is the length of a token's tag, 128 bits.
const tagBytes = 16

// The first byte of a token says how the rest is to be read.
const (
	formPlain  = 1
	formSealed = 2
)

// Sealer turns tokens into text and back. All pods need the same secret.
//
// A sealed token is a synthetic initial vector, the first 128 bits of an HMAC-SHA-256
// of its fields, and these in AES-256-CTR under it: no counter and no luck of a random
// number is needed, and equal tokens give equal texts.
type Sealer struct {
	mac   []byte
	block cipher.Block // nil without a secret
}

// NewSealer returns the sealer of a secret, which may be empty.
func NewSealer(secret []byte) (*Sealer, error) {
	if len(secret) == 0 {
		return &Sealer{}, nil
	}
	block, err := aes.NewCipher(derive(secret, "tallygate reservation cipher"))
	if err != nil {
		return nil, fmt.Errorf("reservation: %w", err)
	}
	return &Sealer{mac: derive(secret, "tallygate reservation tag"), block: block}, nil
}

// derive makes a key for one purpose, so that none is used for two.
func derive(secret []byte, purpose string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// Seal returns the text of a token, at most MaxText bytes of base64url. It fails where
// keys are too long for that.
func (s *Sealer) Seal(t *Token) (string, error) {
	plain := t.appendPlain(nil)
	if len(plain) > maxPlain {
		return "", errTooLong
	}
	if s.block == nil {
		return base64.RawURLEncoding.EncodeToString(append([]byte{formPlain}, plain...)), nil
	}
	text := append([]byte{formSealed}, s.tag(plain)...)
	text = append(text, plain...)
	s.stream(text[1:1+tagBytes], text[1+tagBytes:])
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// Open reads the text of a token. With a secret only what a pod with the same one has
// sealed is read.
func (s *Sealer) Open(text string) (Token, error) {
	if len(text) > MaxText {
		return Token{}, errForm
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) == 0 {
		return Token{}, errForm
	}
	if s.block == nil {
		if raw[0] != formPlain {
			return Token{}, errForm
		}
		return parse(raw[1:])
	}
	if raw[0] != formSealed || len(raw) < 1+tagBytes {
		return Token{}, errForm
	}
	tag, plain := raw[1:1+tagBytes], raw[1+tagBytes:]
	s.stream(tag, plain)
	if !hmac.Equal(tag, s.tag(plain)) {
		return Token{}, errForm
	}
	return parse(plain)
}

// fits reports whether Seal can write a token.
func (t *Token) fits() bool { return len(t.appendPlain(nil)) <= maxPlain }

func (s *Sealer) tag(plain []byte) []byte {
	h := hmac.New(sha256.New, s.mac)
	h.Write(plain)
	return h.Sum(nil)[:tagBytes]
}

// stream encrypts or decrypts in place.
func (s *Sealer) stream(iv, data []byte) {
	cipher.NewCTR(s.block, iv).XORKeyStream(data, data)
}
