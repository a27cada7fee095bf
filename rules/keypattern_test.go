package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

const byAddress = `{'id':'r','match':{'a':'b'},'identity':'ip','algorithm':'token_bucket','rate':1,'burst':1}`

// bursts returns the burst in force for keys.
func burstOf(c *rules.Compiled, key string) int64 {
	lim, _ := c.Effective(key, start)
	return lim.Burst
}

func TestTheBestPatternWins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule string
		overrides  []string // their bursts are 10, 20, …
		want       map[string]int64
	}{
		{
			"the longest wildcard", bucket("r", 1, 1),
			[]string{"acct_*", "acct_launch_*", "acct_launch_7", "*_7", "*"},
			map[string]int64{"acct_launch_7": 30, "acct_launch_8": 20, "acct_8": 10, "acct_7": 10, "user_7": 40, "user_8": 50, "acct_launch_": 20, "": 50},
		},
		{
			"ties by the text", bucket("r", 1, 1),
			[]string{"b*", "*b", "a*", "*a*"},
			map[string]int64{"ab": 40, "ba": 40, "bb": 20, "bx": 10, "xax": 40, "x": 1, "a": 40, "b": 20},
		},
		{
			"pieces in between", bucket("r", 1, 1),
			[]string{"a*b*c", "*b*", "a*c"},
			map[string]int64{"abc": 10, "axbxc": 10, "axc": 30, "xbx": 20, "ac": 30, "acb": 20},
		},
		{
			"exact before network before wildcard", byAddress,
			[]string{"203.0.113.0/24", "203.0.113.9", "203.0.*", "203.0.112.0/20", "*"},
			map[string]int64{"203.0.113.9": 20, "203.0.113.10": 10, "203.0.112.1": 40, "203.0.1.1": 30, "198.51.100.1": 50},
		},
		{
			"SEC-05 mapped networks are IPv4", byAddress,
			[]string{"::ffff:192.0.2.0/120", "::ffff:c633:6400/128", "2001:db8::/32", "2001:db8:1:2::/64", "0.0.0.0/0"},
			map[string]int64{"192.0.2.200": 10, "198.51.100.0": 20, "2001:db8:9::": 30, "2001:db8:1:2::": 40, "9.9.9.9": 50, "2001:db9::": 1},
		},
		{
			"a rule that counts by no address has no networks", bucket("r", 1, 1),
			[]string{"203.0.113.0/24", "203.0.*"},
			map[string]int64{"203.0.113.0/24": 10, "203.0.113.9": 20},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := mustSet(t, tt.rule)
			for i, key := range tt.overrides {
				set.Overrides = append(set.Overrides, rules.Override{Rule: "r", Key: []string{key}, Numbers: rules.Numbers{Burst: int64(10 * (i + 1))}})
			}
			c := mustCompile(t, nil, set, 1, start).Rule("r")
			for key, want := range tt.want {
				if got := burstOf(c, key); got != want {
					t.Errorf("%q has burst %d, want %d", key, got, want)
				}
			}
		})
	}
}

// A caller without identity is no key that a pattern could mean, and a key that begins
// with NUL does not get around one.
func TestPatternsAndMarkedKeys(t *testing.T) {
	t.Parallel()
	c := mustCompile(t, nil, mustSet(t, bucket("r", 1, 1), override("r", "*", `'burst':7`), override("r", "*x", `'burst':8`)), 1, start).Rule("r")
	for key, want := range map[string]int64{
		identity.AnonymousKey("192.0.2.1"): 1, identity.AnonymousKey("2001:db8::x"): 1,
		rules.Key([]string{"\x00x"}): 8, rules.Key([]string{"\x00:"}): 7, "\x00": 1,
	} {
		if got := burstOf(c, key); got != want {
			t.Errorf("%q has burst %d, want %d", key, got, want)
		}
	}
}

func TestPatternsRefused(t *testing.T) {
	t.Parallel()
	byTwo := `{'id':'r','match':{'a':'b'},'identity':['ip','user'],'algorithm':'token_bucket','rate':1,'burst':1}`
	for _, tt := range []struct{ name, rule, key, want string }{
		{"a part of one key", byAddress, `'2001:db8::/72'`, `"2001:db8::/72" is a part of one key: IPv6 counts by its /64`},
		{"an address in a network", byAddress, `'2001:db8::1/32'`, "the network is 2001:db8::/32"},
		{"a mapped network that is no IPv4", byAddress, `'::ffff:0:0/90'`, "is wider than the IPv4 addresses in IPv6"},
		{"junk", byAddress, `'office/24'`, `"office/24" is not a network such as`},
		{"too long", byAddress, `'192.0.2.0/33'`, "is not a network such as"},
		{"a zone", byAddress, `'fe80::%eth0/64'`, "is not a network such as"},
		{"a network in a list", byTwo, `['192.0.2.0/24','u']`, `"192.0.2.0/24" is not an address; name one address, or for a rule that counts by ip alone a network`},
		{"one wildcard for two names", byTwo, `'a*'`, "patterns (*) are only for rules that count by one name"},
		{"a wildcard for one name with two", bucket("r", 1, 1), `['a','b']`, "has 2 values, the rule counts by 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, problems := rules.Compile(nil, mustSet(t, tt.rule, `{'rule':'r','key':`+tt.key+`,'burst':5}`), 1, start)
			if got := lines(problems); !strings.Contains(got, tt.want) || len(problems) != 1 {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	set := mustSet(t, byAddress, override("r", "192.0.2.0/24", `'burst':5`), override("r", "::ffff:192.0.2.0/120", `'burst':6`))
	if _, problems := rules.Compile(nil, set, 1, start); lines(problems) != "key: the rule has an override of this key before it; keep one" {
		t.Errorf("one network in two spellings: %s", lines(problems))
	}
}

func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("r", 1, 1))
	for i := range rules.MaxPatterns + 2 {
		set.Overrides = append(set.Overrides, rules.Override{Rule: "r", Key: []string{fmt.Sprintf("k%d_*", i)}, Numbers: rules.Numbers{Burst: 5}})
	}
	set.Overrides = append(set.Overrides, rules.Override{Rule: "r", Key: []string{"k"}, Numbers: rules.Numbers{Burst: 5}})
	s, problems := rules.Compile(nil, set, 1, start)
	if len(problems) != 2 || !strings.Contains(problems[0].String(), "key: the rule has 1000 patterns before this one") || problems[0].Value != "k1000_*" {
		t.Errorf("got %s", lines(problems))
	}
	for key, want := range map[string]int64{"k999_x": 5, "k1000_x": 1, "k": 5} {
		if got := burstOf(s.Rule("r"), key); got != want {
			t.Errorf("%s has burst %d, want %d", key, got, want)
		}
	}
}

func TestEffectiveDoesNotAllocate(t *testing.T) {
	c := mustCompile(t, nil, mustSet(t, byAddress, override("r", "192.0.2.0/24", `'burst':5`), override("r", "*.7", `'burst':6`),
		override("r", "2001:*", `'burst':7`), override("r", "*:ffff:*", `'burst':8`), override("r", "192.0.2.1", `'burst':9`)), 1, start).Rule("r")
	for _, key := range []string{"192.0.2.1", "192.0.2.9", "198.51.100.7", "2001:db8::", "5:ffff:1::", "9.9.9.9"} {
		if n := testing.AllocsPerRun(100, func() { c.Effective(key, start); c.NotFresh(key, start) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", key, n)
		}
	}
}

// The index finds what comparing with each pattern in turn finds.
func TestPatternsMatchAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab*]{0,3}\*[ab*]{0,3}`), 1, 12, rapid.ID[string]).Draw(t, "patterns")
		set := rules.Set{Rules: []rules.Rule{{
			ID: "r", CoversAll: true, Identity: []string{"k"}, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 1},
		}}}
		for i, text := range texts {
			set.Overrides = append(set.Overrides, rules.Override{Rule: "r", Key: []string{text}, Numbers: rules.Numbers{Burst: int64(i + 2)}})
		}
		c := mustCompileRapid(t, nil, set, 1, start).Rule("r")
		key := rapid.StringMatching(`[ab]{0,6}`).Draw(t, "key")
		best, want := "", int64(1)
		for i, text := range texts {
			literals, bestLiterals := len(strings.ReplaceAll(text, "*", "")), len(strings.ReplaceAll(best, "*", ""))
			if naiveMatch(text, key) && (want == 1 || literals > bestLiterals || literals == bestLiterals && text < best) {
				best, want = text, int64(i+2)
			}
		}
		if got := burstOf(c, key); got != want {
			t.Fatalf("%q among %q has burst %d, want %d of %q", key, texts, got, want, best)
		}
	})
}

// naiveMatch tries every run that a star could stand for.
func naiveMatch(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	if pattern[0] == '*' {
		return naiveMatch(pattern[1:], s) || s != "" && naiveMatch(pattern, s[1:])
	}
	return s != "" && pattern[0] == s[0] && naiveMatch(pattern[1:], s[1:])
}

func TestRevisionsOfKeysUnderPatternsOnlyGrow(t *testing.T) {
	t.Parallel()
	rule := bucket("r", 100, 200)
	end := start.Add(time.Hour)
	s := mustCompile(t, nil, mustSet(t, rule), 10, start)
	step := func(name string, revision int64, now time.Time, set rules.Set, want map[string]string) {
		t.Helper()
		s = mustCompile(t, s, set, revision, now)
		for key, numbers := range want {
			if got := effective(s, "r", key, now); got != numbers {
				t.Errorf("%s: %s has %s, want %s", name, key, got, numbers)
			}
		}
	}
	wide, narrow := override("r", "a*", `'rate':5`), override("r", "ab*", `'rate':7`)
	step("added", 11, start, mustSet(t, rule, wide), map[string]string{"ab": "5/200@22", "x": "100/200@20"})
	step("a better one", 12, start, mustSet(t, rule, wide, narrow), map[string]string{"ab": "7/200@24", "ac": "5/200@22"})
	step("REL-03 another rule", 13, start, mustSet(t, rule, wide, narrow, bucket("z", 1, 1)), map[string]string{"ab": "7/200@24", "ac": "5/200@22", "x": "100/200@20"})
	step("the better one gone", 14, start, mustSet(t, rule, wide), map[string]string{"ab": "5/200@28", "ac": "5/200@28", "x": "100/200@28"})
	step("an exact one", 15, start, mustSet(t, rule, wide, override("r", "ab", `'rate':9`)), map[string]string{"ab": "9/200@30", "abc": "5/200@28"})
	step("the exact one gone", 16, start, mustSet(t, rule, wide), map[string]string{"ab": "5/200@32", "abc": "5/200@28"})
	ends := override("r", "a*", fmt.Sprintf(`'rate':5,'expires_at':'%s'`, end.Format(time.RFC3339)))
	step("it will end", 17, start, mustSet(t, rule, ends), map[string]string{"ab": "5/200@32", "abc": "5/200@28"})
	if got := effective(s, "r", "abc", end) + " " + effective(s, "r", "ab", end); got != "100/200@35 100/200@35" {
		t.Errorf("ended: %s", got)
	}
	// Ended, it takes the place of its keys: a wider pattern does not take over.
	step("ended", 18, end, mustSet(t, rule, ends, override("r", "*", `'rate':3`)), map[string]string{"ab": "100/200@35", "x": "3/200@36"})
	step("ended and removed", 19, end, mustSet(t, rule, override("r", "*", `'rate':3`)), map[string]string{"ab": "3/200@38", "x": "3/200@38"})
}
