package reservation_test

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

func sealer(t testing.TB, secret string) *reservation.Sealer {
	t.Helper()
	s, err := reservation.NewSealer([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func token(keys ...string) *reservation.Token {
	t := &reservation.Token{ID: reservation.Name("req-1"), TTLMS: 60_000, Domain: "llm"}
	for i, key := range keys {
		t.Entries = append(t.Entries, reservation.Entry{Rule: "tokens-" + strconv.Itoa(i), Key: key, Cost: int64(i), Kind: reservation.Kind(i % 3)})
	}
	return t
}

func TestSealer_roundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := reservation.Token{TTLMS: rapid.Int64Range(0, 1<<53).Draw(r, "ttl"), Domain: rapid.String().Draw(r, "domain")}
		copy(want.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "id"))
		for i := range rapid.IntRange(1, 32).Draw(r, "entries") {
			want.Entries = append(want.Entries, reservation.Entry{
				Rule: strconv.Itoa(i) + rapid.StringN(0, 20, -1).Draw(r, "rule"), Key: rapid.SampledFrom([]string{"a", "b", "", "acct"}).Draw(r, "key"),
				Cost: rapid.Int64Range(0, 1<<53).Draw(r, "cost"), Kind: reservation.Kind(rapid.IntRange(0, 2).Draw(r, "kind")),
			})
		}
		s := sealer(t, rapid.SampledFrom([]string{"", "secret"}).Draw(r, "secret"))
		text, err := s.Seal(&want)
		if err != nil {
			r.Fatal(err)
		}
		if got, err := s.Open(text); err != nil || !reflect.DeepEqual(got, want) {
			r.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestSealer_keepsKeysSecret(t *testing.T) {
	text, err := sealer(t, "secret").Seal(token("sk_live_4242424242"))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := base64.RawURLEncoding.DecodeString(text); err != nil || bytes.Contains(raw, []byte("sk_live")) || bytes.Contains(raw, []byte("tokens")) {
		t.Errorf("the token shows the key or the rule: %q, %v", raw, err)
	}
}

func TestSealer_refuses(t *testing.T) {
	sealed, _ := sealer(t, "secret").Seal(token("a", "a", "b"))
	plain, _ := sealer(t, "").Seal(token("a", "a", "b"))
	for _, c := range []struct{ name, secret, text string }{
		{"nothing", "secret", ""},
		{"no base64", "secret", "%%%"},
		{"another secret", "other", sealed},
		{"a plain one where there is a secret", "secret", plain},
		{"a sealed one without a secret", "", sealed},
		{"a part", "", plain[:len(plain)-4]},
		{"more", "", plain + "AAAA"},
		{"too long", "", strings.Repeat("A", reservation.MaxText+1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := sealer(t, c.secret).Open(c.text); err == nil {
				t.Errorf("it was read as %+v", got)
			}
		})
	}
	t.Run("any bit changed", func(t *testing.T) {
		s := sealer(t, "secret")
		raw, _ := base64.RawURLEncoding.DecodeString(sealed)
		for i := range 8 * len(raw) {
			raw[i/8] ^= 1 << (i % 8)
			if _, err := s.Open(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
				t.Fatalf("bit %d makes no difference", i)
			}
			raw[i/8] ^= 1 << (i % 8)
		}
	})
}

func TestSealer_bound(t *testing.T) {
	s := sealer(t, "secret")
	if text, err := s.Seal(token(strings.Repeat("a", 4096), strings.Repeat("b", 4096))); err != nil || len(text) > reservation.MaxText {
		t.Errorf("two of the longest keys: %d bytes, %v", len(text), err)
	}
	if _, err := s.Seal(token(strings.Repeat("a", 4096), strings.Repeat("b", 4096), strings.Repeat("c", 4096))); err == nil {
		t.Error("three of the longest keys have a token")
	}
}

// Whoever makes a token without a secret gets no longer key than by a check.
func TestToken_Valid(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(*reservation.Token)
		want bool
	}{
		{"as Reserve makes it", func(*reservation.Token) {}, true},
		{"the longest key", func(t *reservation.Token) { t.Entries[0].Key = strings.Repeat("k", rules.MaxKeyBytes) }, true},
		{"a key too long", func(t *reservation.Token) { t.Entries[0].Key = strings.Repeat("k", rules.MaxKeyBytes+1) }, false},
		{"no key", func(t *reservation.Token) { t.Entries[0].Key = "" }, false},
		{"a cost too large", func(t *reservation.Token) { t.Entries[0].Cost = limit.MaxCost + 1 }, false},
		{"too short", func(t *reservation.Token) { t.TTLMS = 999 }, false},
		{"too long", func(t *reservation.Token) { t.TTLMS = 3_600_001 }, false},
	} {
		made := token("k")
		tt.make(made)
		if got := made.Valid(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestIn_tellsBucketsApart(t *testing.T) {
	id := reservation.Name("x")
	seen := map[[16]byte]bool{}
	for _, b := range [][3]string{{"d", "r", "k"}, {"d", "rk", ""}, {"dr", "", "k"}, {"d", "r", "l"}} {
		seen[reservation.In(id, b[0], b[1], b[2])] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d names of 4 buckets", len(seen))
	}
}

// FuzzOpen: whatever is read without a secret says the same when written again.
func FuzzOpen(f *testing.F) {
	for _, keys := range [][]string{{"a"}, {"a", "a"}, {"a", "b", "b"}} {
		text, _ := sealer(f, "").Seal(token(keys...))
		f.Add(text)
	}
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := sealer(t, "secret").Open(text); err == nil {
			t.Fatal("a token was made without the secret")
		}
		s := sealer(t, "")
		got, err := s.Open(text)
		if err != nil {
			return
		}
		again, err := s.Seal(&got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := s.Open(again); err != nil || !reflect.DeepEqual(back, got) {
			t.Fatalf("%+v became %+v, %v", got, back, err)
		}
	})
}
