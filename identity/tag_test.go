package identity_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/identity"
)

// encoder is what a store asks for, see redisstore.
type encoder interface {
	AppendTag(dst []byte, domain, key string) []byte
}

var (
	_ encoder = (*identity.Hasher)(nil)
	_ encoder = identity.Plain{}
)

func TestKeyIsInjective(t *testing.T) {
	t.Parallel()
	lists := [][]string{
		{"a"},
		{"a", "b"},
		{"ab"},
		{"a", "b", "c"},
		{"a:b", "c"},
		{"a", "b:c"},
		{"a/b"},
		{"a_b"},
		{"1:a1:b"},
		{"\x001:a1:b"},
		{"\x00a203.0.113.9"},
		{"203.0.113.9"},
		{"", "ab"},
		{"ab", ""},
		{"a\x00b"},
		{"a", "\x00b"},
		{"\x00"},
		{"{a}b}"},
		{"{}"},
	}
	seen := map[string][]string{identity.AnonymousKey("203.0.113.9"): nil}
	for _, parts := range lists {
		key := identity.Key(parts)
		if other, dup := seen[key]; dup {
			t.Errorf("KEY-01: %q and %q share the key %q", parts, other, key)
		}
		seen[key] = parts
	}
	if got := identity.Key([]string{"acct_7Q2"}); got != "acct_7Q2" {
		t.Errorf("the key of one value is %q, want the value", got)
	}
}

// The key that invented identities share is no one's: not of any values, of no caller.
func TestOverflowKeyIsNobodys(t *testing.T) {
	t.Parallel()
	if parts, anonymous, ok := identity.Parts(identity.OverflowKey); ok {
		t.Errorf("it is the key of %q (anonymous: %v)", parts, anonymous)
	}
	for _, key := range []string{
		identity.Key([]string{identity.OverflowKey}), identity.Key([]string{"o"}), identity.Key([]string{"", "o"}),
		identity.AnonymousKey(""), identity.AnonymousKey("o"),
	} {
		if key == identity.OverflowKey {
			t.Errorf("%q has it", key)
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	t.Parallel()
	part := rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte("a1:/\x00{}%")), 0, 6).Draw(t, "bytes"))
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(part, 1, 4).Draw(t, "parts")
		got, anonymous, ok := identity.Parts(identity.Key(parts))
		if !ok || anonymous || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", parts) {
			t.Fatalf("Parts(Key(%q)) = %q, %v, %v", parts, got, anonymous, ok)
		}
	})
}

func TestPlainTag(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, domain, key, want string }{
		{"account", "public-api", "acct_7Q2", "public-api/acct_7Q2"},
		{"braces", "d", "{acct_7Q2}", "d/%7Bacct_7Q2%7D"},
		{"empty braces", "d", "{}", "d/%7B%7D"},
		{"colon and slash", "d", "a:b/c", "d/a%3Ab%2Fc"},
		{"per cent", "d", "100%", "d/100%25"},
		{"newline, NUL, UTF-8", "d", "\n\x00é", "d/%0A%00%C3%A9"},
		{"two values", "d", identity.Key([]string{"a", "b"}), "d/a/b"},
		{"one value of two's look", "d", "a/b", "d/a%2Fb"},
		{"anonymous", "d", identity.AnonymousKey("2001:db8::"), "d/%ip/2001%3Adb8%3A%3A"},
		{"no key of ours", "d", "\x00zz", "d/%raw/%00zz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(identity.Plain{}.AppendTag(nil, tt.domain, tt.key)); got != tt.want {
				t.Errorf("tag %q, want %q", got, tt.want)
			}
		})
	}
	if got := (identity.Plain{}).Redact("acct 7"); got != "acct%207" {
		t.Errorf("Redact = %q, want acct%%207", got)
	}
}

func TestHasherTag(t *testing.T) {
	t.Parallel()
	h := identity.NewHasher([]byte("k1"))
	tag := string(h.AppendTag([]byte("tg:{"), "d", "acct_7Q2"))
	if len(tag) != len("tg:{")+22 || !strings.HasPrefix(tag, "tg:{") {
		t.Errorf("tag %q, want 22 characters appended", tag)
	}
	seen := map[string]string{}
	for name, got := range map[string][]byte{
		"base":         h.AppendTag(nil, "d", "acct_7Q2"),
		"another key":  h.AppendTag(nil, "d", "acct_7Q3"),
		"domain moved": h.AppendTag(nil, "da", "cct_7Q2"),
		"no domain":    h.AppendTag(nil, "", "dacct_7Q2"),
		"other secret": identity.NewHasher([]byte("k2")).AppendTag(nil, "d", "acct_7Q2"),
		"no secret":    identity.NewHasher(nil).AppendTag(nil, "d", "acct_7Q2"),
		"long":         h.AppendTag(nil, "d", strings.Repeat("x", 4096)),
		"long, ending": h.AppendTag(nil, "d", strings.Repeat("x", 4095)+"y"),
	} {
		if other, dup := seen[string(got)]; dup {
			t.Errorf("%s and %s share the tag %s", name, other, got)
		}
		seen[string(got)] = name
	}
	if got := h.Redact("acct_7Q2"); len(got) != 8 || strings.Contains(got, "acct") {
		t.Errorf("Redact = %q, want 8 hex digits", got)
	}
}

func TestHasherTagIsStable(t *testing.T) {
	t.Parallel()
	// Names in a running store: a change of the formula is a reset of every
	// bucket.
	got := string(identity.NewHasher([]byte("secret")).AppendTag(nil, "public-api", "acct_7Q2"))
	if want := "IF6VD5hA39MnCVHFy-LzEA"; got != want {
		t.Errorf("tag %q, want %q as in every release", got, want)
	}
}

func TestAppendTagDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 512)
	for name, e := range map[string]encoder{"hashed": identity.NewHasher([]byte("k")), "plain": identity.Plain{}} {
		if n := testing.AllocsPerRun(100, func() { e.AppendTag(buf, "public-api", "acct_7Q2") }); n != 0 {
			t.Errorf("%s: AppendTag allocates %v times, want 0", name, n)
		}
	}
}

// decodePlain undoes Plain.AppendTag, to prove that nothing is lost.
func decodePlain(t *testing.T, tag string) (domain, key string) {
	t.Helper()
	domain, rest, ok := strings.Cut(tag, "/")
	if !ok {
		t.Fatalf("no domain in %q", tag)
	}
	if raw, ok := strings.CutPrefix(rest, "%raw/"); ok {
		return unescape(t, domain), unescape(t, raw)
	}
	if ip, ok := strings.CutPrefix(rest, "%ip/"); ok {
		return unescape(t, domain), identity.AnonymousKey(unescape(t, ip))
	}
	var parts []string
	for p := range strings.SplitSeq(rest, "/") {
		parts = append(parts, unescape(t, p))
	}
	return unescape(t, domain), identity.Key(parts)
}

func unescape(t *testing.T, s string) string {
	t.Helper()
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			t.Fatalf("bad escape in %q: %v", s, err)
		}
		out, i = append(out, byte(n)), i+2
	}
	return string(out)
}

func FuzzTag(f *testing.F) {
	for _, key := range []string{
		"acct_7Q2", "{acct_7Q2}", "{}", "{a}b}", "a:b", "\x00", "\x00a1.2.3.4", "\x001:a2:bc", "\x002:\x00b", "%ip/x",
		"\x0001:a", "\x001:a",
	} {
		f.Add("public-api", key)
	}
	h := identity.NewHasher([]byte("k"))
	f.Fuzz(func(t *testing.T, domain, key string) {
		for _, e := range []encoder{h, identity.Plain{}} {
			if tag := e.AppendTag(nil, domain, key); bytes.ContainsAny(tag, "{}: \n\x00") {
				t.Fatalf("tag %q of %q has a character that splits store keys", tag, key)
			}
		}
		tag := string(identity.Plain{}.AppendTag(nil, domain, key))
		if d, k := decodePlain(t, tag); d != domain || k != key {
			t.Fatalf("%q decodes to %q, %q; want %q, %q", tag, d, k, domain, key)
		}
	})
}
