package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tallygate/tallygate/identity/jwt"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return now }

// signer makes tokens with one key.
type signer struct {
	private any
	alg     jose.SignatureAlgorithm
	kid     string
}

func (s signer) token(t testing.TB, claims any) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if s.kid != "" {
		opts = opts.WithHeader("kid", s.kid)
	}
	sig, err := jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: s.private}, opts)
	if err != nil {
		t.Fatal(err)
	}
	text, ok := claims.(string)
	if !ok {
		b, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	object, err := sig.Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	token, err := object.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (s signer) public(use string) jose.JSONWebKey {
	k := jose.JSONWebKey{Key: s.private, KeyID: s.kid, Use: use}
	if p, ok := s.private.(crypto.Signer); ok {
		k.Key = p.Public()
	}
	return k
}

func set(t testing.TB, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func edKey(t testing.TB, kid string) signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{private, jose.EdDSA, kid}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	ed := edKey(t, "ed")
	stranger := edKey(t, "ed")
	rs := signer{must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048)), jose.RS256, "rs"}
	es := signer{must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), jose.ES256, "es"}
	enc := edKey(t, "enc")
	hs := signer{[]byte(strings.Repeat("k", 32)), jose.HS256, "hs"}
	// The classic forgery: the public key of RS256 as the secret of HS256.
	confused := signer{[]byte("-----BEGIN PUBLIC KEY----- of rs, padded to 32 bytes"), jose.HS256, "rs"}
	pinned := edKey(t, "pinned")
	pinnedKey := pinned.public("sig")
	pinnedKey.Algorithm = "ES256"
	keys := set(t, ed.public("sig"), rs.public(""), es.public("sig"), enc.public("enc"), hs.public("sig"), pinnedKey)
	// A kind of key from the future is passed over.
	keys = []byte(strings.Replace(string(keys), `"keys":[`, `"keys":[{"kty":"AKP","kid":"pq"},`, 1))

	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	good := map[string]any{
		"iss": "https://id.example", "aud": []string{"api", "web"}, "sub": "u_17", "exp": at(time.Hour), "nbf": at(-time.Hour),
		"org": 1234567890123, "beta": true, "level": 1.5, "roles": []string{"a"}, "nested": map[string]any{"a": 1}, "none": nil,
	}
	with := func(name string, value any) map[string]any {
		c := maps.Clone(good)
		c[name] = value
		if value == nil {
			delete(c, name)
		}
		return c
	}
	config := jwt.Config{Keys: keys, Issuer: "https://id.example", Audience: "api", Leeway: 30 * time.Second, Now: clock}
	symmetric := config
	symmetric.Algorithms = []string{"HS256"}
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"u_17","exp":99999999999,"iss":"https://id.example","aud":"api"}`)) + "."
	for _, tt := range []struct {
		name   string
		config jwt.Config
		token  string
		ok     bool
	}{
		{"EdDSA", config, ed.token(t, good), true},
		{"RS256", config, rs.token(t, good), true},
		{"ES256", config, es.token(t, good), true},
		{"one audience as text", config, ed.token(t, with("aud", "api")), true},
		{"HS256 if named", symmetric, hs.token(t, good), true},
		{"HS256 if not", config, hs.token(t, good), false},
		{"EdDSA if only HS256 is named", symmetric, ed.token(t, good), false},
		{"HS256 with a public key", symmetric, confused.token(t, good), false},
		{"another's signature", config, stranger.token(t, good), false},
		{"a key for encryption", config, enc.token(t, good), false},
		{"a key of another algorithm", config, pinned.token(t, good), false},
		{"no kid among several keys", config, signer{ed.private, jose.EdDSA, ""}.token(t, good), false},
		{"an unknown kid", config, signer{ed.private, jose.EdDSA, "x"}.token(t, good), false},
		{"not signed", config, unsigned, false},
		{"expired within leeway", config, ed.token(t, with("exp", at(-29*time.Second))), true},
		{"expired", config, ed.token(t, with("exp", at(-31*time.Second))), false},
		{"no end", config, ed.token(t, with("exp", nil)), false},
		{"not yet", config, ed.token(t, with("nbf", at(31*time.Second))), false},
		{"almost yet", config, ed.token(t, with("nbf", at(29*time.Second))), true},
		{"another issuer", config, ed.token(t, with("iss", "https://evil.example")), false},
		{"another audience", config, ed.token(t, with("aud", "web")), false},
		{"no object", config, ed.token(t, `["a"]`), false},
		{"junk", config, "a.b.c", false},
		{"nothing", config, "", false},
		{"a changed payload", config, swap(ed.token(t, good), ed.token(t, with("sub", "admin"))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			claims, ok := must[*jwt.Verifier](t)(jwt.New(tt.config)).Claims(tt.token)
			if ok != tt.ok {
				t.Fatalf("ok is %v, want %v", ok, tt.ok)
			}
			if !ok && claims != nil {
				t.Errorf("claims of a bad token: %v", claims)
			}
			if ok && (claims["sub"] != "u_17" || claims["org"] != "1234567890123" || claims["beta"] != "true") {
				t.Errorf("claims are %v", claims)
			}
			for _, name := range []string{"level", "roles", "nested", "none"} {
				if value, there := claims[name]; there {
					t.Errorf("%s is text: %q", name, value)
				}
			}
		})
	}
}

// swap gives a token the payload of another.
func swap(token, other string) string {
	parts, others := strings.Split(token, "."), strings.Split(other, ".")
	parts[1] = others[1]
	return strings.Join(parts, ".")
}

func TestLoadRotates(t *testing.T) {
	t.Parallel()
	former, next := edKey(t, "a"), edKey(t, "b")
	claims := map[string]any{"sub": "u", "exp": now.Unix() + 60}
	v := must[*jwt.Verifier](t)(jwt.New(jwt.Config{Keys: set(t, former.public("")), Now: clock}))
	if err := v.Load([]byte("{}")); err == nil {
		t.Error("an empty set was loaded")
	}
	if _, ok := v.Claims(former.token(t, claims)); !ok {
		t.Error("the former keys are gone after a bad set")
	}
	if err := v.Load(set(t, next.public(""))); err != nil {
		t.Fatal(err)
	}
	if _, ok := v.Claims(former.token(t, claims)); ok {
		t.Error("the former key still counts")
	}
	if _, ok := v.Claims(next.token(t, claims)); !ok {
		t.Error("the new key does not count")
	}
	if _, ok := v.Claims(signer{next.private, jose.EdDSA, ""}.token(t, claims)); !ok {
		t.Error("a token without kid does not find the only key")
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	key := edKey(t, "a")
	good := set(t, key.public(""))
	private := set(t, jose.JSONWebKey{Key: key.private, KeyID: "a"})
	many := make([]jose.JSONWebKey, jwt.MaxKeys+1)
	for i := range many {
		many[i] = key.public("")
	}
	for _, tt := range []struct {
		name   string
		config jwt.Config
		want   string
	}{
		{"no keys", jwt.Config{}, `the key set is not JSON like {"keys":[…]} (RFC 7517): unexpected end`},
		{"keys that are no list", jwt.Config{Keys: []byte(`{"keys":"x"}`)}, "there is a wrong string at byte"},
		{"a curve that is none", jwt.Config{Keys: []byte(`{"keys":[{"kty":"EC","kid":"k","crv":"P-9","x":"AA","y":"AA"}]}`)}, `keys/0 of the key set: key "k" of kty EC cannot be used: unsupported`},
		{"only a secret, which nobody asked for", jwt.Config{Keys: []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`)}, "none of the 1 keys"},
		{"no JSON", jwt.Config{Keys: []byte("-----BEGIN")}, `the key set is not JSON like {"keys":[…]} (RFC 7517): invalid character`},
		{"keys that are no list", jwt.Config{Keys: []byte(`{"keys":"x"}`)}, "there is a wrong string at byte"},
		{"a curve that is none", jwt.Config{Keys: []byte(`{"keys":[{"kty":"EC","kid":"k","crv":"P-9","x":"AA","y":"AA"}]}`)}, `keys/0 of the key set: key "k" of kty EC cannot be used: unsupported`},
		{"only a secret, which nobody asked for", jwt.Config{Keys: []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`)}, "none of the 1 keys"},
		{"a private key", jwt.Config{Keys: private}, `key "a" is private`},
		{"a broken key", jwt.Config{Keys: []byte(`{"keys":[{"kty":"RSA"}]}`)}, "keys/0"},
		{"a key that is none", jwt.Config{Keys: []byte(`{"keys":[1]}`)}, "keys/0 of the key set: not a key: there is a wrong number"},
		{"only keys for encryption", jwt.Config{Keys: set(t, key.public("enc"))}, "none of the 1 keys"},
		{"too many keys", jwt.Config{Keys: set(t, many...)}, "has 65 keys, more than 64"},
		{"too much text", jwt.Config{Keys: make([]byte, jwt.MaxKeysBytes+1)}, "more than 1048576"},
		{"no signature", jwt.Config{Keys: good, Algorithms: []string{"none"}}, `"none" is none of`},
		{"no algorithm", jwt.Config{Keys: good, Algorithms: []string{}}, "Algorithms is empty"},
		{"long leeway", jwt.Config{Keys: good, Leeway: time.Hour}, "Leeway 1h0m0s is not 0 to 5m0s"},
	} {
		if _, err := jwt.New(tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

func FuzzClaims(f *testing.F) {
	key := edKey(f, "a")
	v := must[*jwt.Verifier](f)(jwt.New(jwt.Config{Keys: set(f, key.public("")), Now: clock}))
	good := key.token(f, map[string]any{"sub": "u", "exp": now.Unix() + 60})
	f.Add(good)
	f.Add("a.b.c")
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok := v.Claims(token); ok && token != good {
			// Only blanks, and bits after the last one that base64 leaves open, may differ.
			if strings.Count(token, ".") != 2 || strings.Split(token, ".")[1] != strings.Split(good, ".")[1] {
				t.Fatalf("a forged token counts: %q", token)
			}
		}
	})
}

func BenchmarkClaims(b *testing.B) {
	key := edKey(b, "a")
	v := must[*jwt.Verifier](b)(jwt.New(jwt.Config{Keys: set(b, key.public("")), Now: clock}))
	token := key.token(b, map[string]any{"sub": "u", "exp": now.Unix() + 60})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := v.Claims(token); !ok {
			b.Fatal("refused")
		}
	}
}
