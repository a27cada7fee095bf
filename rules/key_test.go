package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/rules"
)

// counting returns a rule that counts by the identity, in JSON, and matches all.
func counting(id, who, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{'id':'%s','covers_all':true,'identity':%s,'algorithm':'token_bucket','rate':1,'burst':5%s}`, id, who, more)
}

func compiled(t testing.TB, text string) *rules.Compiled {
	t.Helper()
	return mustCompile(t, nil, mustSet(t, text), 1, start).Rules()[0]
}

func TestKeyOf(t *testing.T) {
	t.Parallel()
	user := compiled(t, counting("r", `'user'`, ""))
	byIP := compiled(t, counting("r", `'ip'`, ""))
	both := compiled(t, counting("r", `['user','ip']`, ""))
	for _, tt := range []struct {
		name  string
		rule  *rules.Compiled
		parts []string
		want  string // the key, or the error
	}{
		{"value", user, []string{"acct_7Q2"}, "acct_7Q2"},
		{"value that looks like two", user, []string{"a:b"}, "a:b"},
		{"KEY-04 4 KiB", user, []string{strings.Repeat("k", 4096)}, strings.Repeat("k", 4096)},
		{"KEY-04 more", user, []string{strings.Repeat("k", 4097)}, `rule "r": key: 4097 bytes are above 4096`},
		{"KEY-04 1 MiB", user, []string{strings.Repeat("k", 1<<20)}, `rule "r": key: 1048576 bytes are above 4096`},
		{"empty", user, []string{""}, `rule "r": user: is empty`},
		{"none", user, nil, `rule "r": key: has 0 values, the rule counts by 1 ["user"]`},
		{"two", user, []string{"a", "b"}, `rule "r": key: has 2 values, the rule counts by 1 ["user"]`},
		{"SEC-05 address", byIP, []string{"::ffff:c000:201"}, "192.0.2.1"},
		{"SEC-07 port", byIP, []string{"[2001:db8:1:2::1]:443"}, "2001:db8:1:2::"},
		{"SEC-07 junk", byIP, []string{"junk1"}, `rule "r": ip: "junk1" is not an address`},
		{"list", both, []string{"a", "192.0.2.1:80"}, rules.Key([]string{"a", "192.0.2.1"})},
		{"list with an empty value", both, []string{"", "192.0.2.1"}, `rule "r": user: is empty`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.rule.KeyOf(tt.parts)
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %.80q, want %.80q", got, tt.want)
			}
			var keyErr *rules.KeyError
			if long := strings.Contains(tt.want, "above"); errors.As(err, &keyErr) && keyErr.TooLong != long {
				t.Errorf("TooLong = %v, want %v", keyErr.TooLong, long)
			}
		})
	}
}

func TestKeyIsTheSameHoweverItComes(t *testing.T) {
	t.Parallel()
	both := compiled(t, counting("r", `['user','ip']`, ""))
	named, err := both.KeyOf([]string{"a", "192.0.2.1"})
	matched, ok := both.KeyFrom(map[string]string{"user": "a", "ip": "::ffff:192.0.2.1"})
	if err != nil || !ok || named != matched {
		t.Errorf("named %q (%v), from attributes %q (%v)", named, err, matched, ok)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	const ip = "203.0.113.9"
	anonymous := identity.AnonymousKey(ip)
	for _, tt := range []struct {
		name  string
		rules []string
		attrs map[string]string
		want  string
	}{
		{
			"identified",
			[]string{counting("key", `'api_key'`, ""), counting("ip", `'ip'`, "")},
			map[string]string{"api_key": "k", "ip": ip},
			"key=k ip=" + ip,
		},
		{
			"anonymous falls to the rule for ip",
			[]string{counting("key", `'api_key'`, ""), counting("ip", `'ip'`, "")},
			map[string]string{"ip": ip},
			"ip=" + ip,
		},
		{
			"empty is absent",
			[]string{counting("key", `'api_key'`, ""), counting("ip", `'ip'`, "")},
			map[string]string{"api_key": "", "ip": ip},
			"ip=" + ip,
		},
		{
			"no rule for ip: counts by ip itself",
			[]string{counting("key", `'api_key'`, "")},
			map[string]string{"ip": "::ffff:203.0.113.9"},
			"key=" + anonymous,
		},
		{
			"part of a list is missing",
			[]string{counting("key", `['api_key','route']`, "")},
			map[string]string{"route": "GET /", "ip": ip},
			"key=" + anonymous,
		},
		{
			"a list with ip is no rule for anonymous traffic",
			[]string{counting("key", `'api_key'`, ""), counting("pair", `['ip','route']`, "")},
			map[string]string{"route": "GET /", "ip": ip},
			"key=" + anonymous + " pair=" + rules.Key([]string{ip, "GET /"}),
		},
		{
			"a shadow rule takes nothing over",
			[]string{counting("key", `'api_key'`, ""), counting("ip", `'ip'`, `'mode':'shadow'`)},
			map[string]string{"ip": ip},
			"key=" + anonymous + " ip=" + ip,
		},
		{
			"nor does allow",
			[]string{counting("key", `'api_key'`, ""), `{'id':'allow','covers_all':true,'action':'allow'}`},
			map[string]string{"ip": ip},
			"key=" + anonymous + " allow=",
		},
		{
			"nothing to count by",
			[]string{counting("key", `'api_key'`, "")},
			map[string]string{"user": "u"},
			`missing: rule "key": api_key: is missing, and there is no ip to count by instead`,
		},
		{
			"junk to count by instead",
			[]string{counting("key", `'api_key'`, "")},
			map[string]string{"ip": "localhost"},
			`missing: rule "key": api_key: is missing, and the ip to count by instead, "localhost", is not an address`,
		},
		{
			"junk for an address",
			[]string{counting("ip", `'ip'`, "")},
			map[string]string{"ip": "junk1"},
			`missing: rule "ip": ip: "junk1" is not an address, and there is no other to count by`,
		},
		{
			"a shadow rule refuses nothing",
			[]string{counting("shadow", `'api_key'`, `'mode':'shadow'`), counting("user", `'user'`, "")},
			map[string]string{"user": "u"},
			"user=u",
		},
		{
			"too long",
			[]string{counting("user", `'user'`, "")},
			map[string]string{"user": strings.Repeat("u", 5000)},
			`too long: rule "user": key: 5000 bytes are above 4096`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := mustCompile(t, nil, mustSet(t, tt.rules...), 1, start).Domain("")
			bound, err := rules.Resolve(tt.attrs, d.Match(tt.attrs, nil), nil)
			var parts []string
			for _, b := range bound {
				parts = append(parts, b.Rule.ID()+"="+b.Key)
			}
			got := strings.Join(parts, " ")
			if keyErr, ok := errors.AsType[*rules.KeyError](err); ok {
				kind := map[bool]string{keyErr.Missing: "missing: ", keyErr.TooLong: "too long: "}[true]
				got = kind + err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestAnonymousKeyCannotBeClaimed(t *testing.T) {
	t.Parallel()
	c := compiled(t, counting("key", `'api_key'`, ""))
	bound, err := rules.Resolve(map[string]string{"ip": "203.0.113.9"}, []*rules.Compiled{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range []string{"203.0.113.9", "ip:203.0.113.9", bound[0].Key} {
		if key, ok := c.KeyFrom(map[string]string{"api_key": claim}); !ok || key == bound[0].Key {
			t.Errorf("an api_key of %q is counted as the anonymous address", claim)
		}
	}
}
