package jwt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/tallygate/tallygate/identity"
)

// Config says which tokens are believed.
type Config struct {
	// Keys is a JSON Web Key Set (RFC 7517) of public keys. Required. Keys for
	// encryption, of kinds not known here, and secrets (kty oct) where Algorithms names
	// none that uses them, are passed over.
	Keys []byte
	// Algorithms are the signatures accepted, such as "RS256"; nil means all with
	// public keys: EdDSA, ES256, ES384, ES512, RS256 to RS512, PS256 to PS512. HS256
	// to HS512 count only if named: who can check such a token can also make one.
	// "none" is never accepted.
	Algorithms []string
	// Issuer must be the token's iss, and Audience among its aud; "" means any.
	Issuer, Audience string
	// Leeway is how far clocks may be apart, 0 to 5 minutes; 0 means none.
	Leeway time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Bounds of what is read.
const (
	// MaxKeys bounds a key set, MaxKeysBytes its text.
	MaxKeys      = 64
	MaxKeysBytes = 1 << 20
	maxLeeway    = 5 * time.Minute
)

// Verifier checks tokens. Create it with [New].
type Verifier struct {
	algorithms []jose.SignatureAlgorithm
	expected   jwt.Expected
	leeway     time.Duration
	now        func() time.Time
	keys       atomic.Pointer[[]jose.JSONWebKey]
}

var _ identity.Verifier = (*Verifier)(nil)

// New returns the Verifier of a configuration.
func New(c Config) (*Verifier, error) {
	v := &Verifier{
		leeway:   c.Leeway,
		now:      c.Now,
		expected: jwt.Expected{Issuer: c.Issuer},
	}
	if c.Leeway < 0 || c.Leeway > maxLeeway {
		return nil, fmt.Errorf("jwt: Leeway %v is not 0 to %v", c.Leeway, maxLeeway)
	}
	if c.Audience != "" {
		v.expected.AnyAudience = jwt.Audience{c.Audience}
	}
	if v.now == nil {
		v.now = time.Now
	}
	v.algorithms = asymmetric()
	if c.Algorithms != nil {
		v.algorithms = nil
	}
	for _, name := range c.Algorithms {
		alg := jose.SignatureAlgorithm(name)
		if !slices.Contains(slices.Concat(asymmetric(), symmetric()), alg) {
			return nil, fmt.Errorf("jwt: Algorithms: %q is none of %v %v", name, asymmetric(), symmetric())
		}
		v.algorithms = append(v.algorithms, alg)
	}
	if len(v.algorithms) == 0 {
		return nil, fmt.Errorf("jwt: Algorithms is empty: no token could be believed; leave it nil or name one of %v", asymmetric())
	}
	if err := v.Load(c.Keys); err != nil {
		return nil, err
	}
	return v, nil
}

func asymmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.EdDSA, jose.ES256, jose.ES384, jose.ES512,
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	}
}

func symmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512}
}

// Load replaces the keys by those of another set, such as after a rotation. After
// an error the former ones stay.
func (v *Verifier) Load(set []byte) error {
	if len(set) > MaxKeysBytes {
		return fmt.Errorf("jwt: the key set has %d bytes, more than %d", len(set), MaxKeysBytes)
	}
	var list struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(set, &list); err != nil {
		return fmt.Errorf(`jwt: the key set is not JSON like {"keys":[…]} (RFC 7517): %s`, jsonFault(err))
	}
	if len(list.Keys) > MaxKeys {
		return fmt.Errorf("jwt: the key set has %d keys, more than %d", len(list.Keys), MaxKeys)
	}
	var keys []jose.JSONWebKey
	for i, text := range list.Keys {
		key, used, err := v.parseKey(text)
		if err != nil {
			return fmt.Errorf("jwt: keys/%d of the key set: %w", i, err)
		}
		if used {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return fmt.Errorf("jwt: none of the %d keys of the key set verifies signatures: it takes one of kty RSA, EC or OKP whose use is not enc", len(list.Keys))
	}
	v.keys.Store(&keys)
	return nil
}

// jsonFault says what is wrong with a text without the names of Go's types.
func jsonFault(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("there is a wrong %s at byte %d", e.Value, e.Offset)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%s at byte %d", e.Error(), e.Offset)
	}
	return err.Error()
}

// parseKey reads one key. One that no accepted signature is made with is not used: a
// secret where only public keys count, a key for encryption, a kind not known here.
func (v *Verifier) parseKey(text []byte) (key jose.JSONWebKey, used bool, err error) {
	var head struct {
		Kty string `json:"kty"`
		Use string `json:"use"`
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return key, false, fmt.Errorf("not a key: %s", jsonFault(err))
	}
	switch {
	case head.Use != "" && head.Use != "sig":
		return key, false, nil
	case head.Kty == "oct" && !slices.ContainsFunc(v.algorithms, func(a jose.SignatureAlgorithm) bool { return slices.Contains(symmetric(), a) }):
		return key, false, nil
	case !slices.Contains([]string{"RSA", "EC", "OKP", "oct"}, head.Kty):
		return key, false, nil
	}
	if err := key.UnmarshalJSON(text); err != nil {
		return key, false, fmt.Errorf("key %.60q of kty %s cannot be used: %s", head.Kid, head.Kty, strings.TrimPrefix(err.Error(), "go-jose/go-jose: "))
	}
	if head.Kty != "oct" && !key.IsPublic() {
		return key, false, fmt.Errorf("key %.60q is private; write the public one", key.KeyID)
	}
	return key, true, nil
}

// Claims returns the claims of a token as text: strings as they are, whole numbers
// and booleans as JSON writes them; lists, objects and fractions are left out. ok
// is false unless the signature is right, exp is there and not over, nbf and iat
// are not ahead, and issuer and audience are the expected.
func (v *Verifier) Claims(token string) (map[string]string, bool) {
	parsed, err := jwt.ParseSigned(token, v.algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, false
	}
	key := v.key(&parsed.Headers[0])
	if key == nil {
		return nil, false
	}
	var known jwt.Claims
	var all map[string]json.RawMessage
	if err := parsed.Claims(key.Key, &known, &all); err != nil || known.Expiry == nil {
		return nil, false
	}
	expected := v.expected.WithTime(v.now())
	if err := known.ValidateWithLeeway(expected, v.leeway); err != nil {
		return nil, false
	}
	claims := make(map[string]string, len(all))
	for name, value := range all {
		if text, ok := textOf(value); ok {
			claims[name] = text
		}
	}
	return claims, true
}

// key returns the one key that a token names; without a name the only one there
// is. Trying all would be as many signatures as a client likes to have checked.
func (v *Verifier) key(h *jose.Header) *jose.JSONWebKey {
	keys := *v.keys.Load()
	for i := range keys {
		k := &keys[i]
		if k.KeyID != h.KeyID && (h.KeyID != "" || len(keys) > 1) {
			continue
		}
		if k.Algorithm == "" || k.Algorithm == h.Algorithm {
			return k
		}
	}
	return nil
}

func textOf(value json.RawMessage) (string, bool) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return "", false
	}
	switch c := value[0]; {
	case c == '"':
		var s string
		err := json.Unmarshal(value, &s)
		return s, err == nil
	case c == 't' || c == 'f':
		return string(value), true
	case c == '-' || c >= '0' && c <= '9':
		n, err := strconv.ParseInt(string(value), 10, 64)
		return strconv.FormatInt(n, 10), err == nil
	}
	return "", false
}
