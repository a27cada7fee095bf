package rules_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
)

const (
	aBucket = `'id':'r','covers_all':true,'identity':'k','algorithm':'token_bucket','rate':1,'burst':5`
	aLog    = `'id':'r','covers_all':true,'identity':'k','algorithm':'sliding_log','limit':5,'window_s':60`
)

func TestCounting(t *testing.T) {
	for _, c := range []struct {
		name, rule, more string
		counting         rules.Counting
		lease            int64
		sync             time.Duration
		before           rules.PreLimit
	}{
		{"by default", aBucket, ``, rules.CountingLease, 1000, 50 * time.Millisecond, rules.PreLimit{Of: "limit", TimesMilli: 1000}},
		{"a log", aLog, ``, rules.CountingExact, 0, 50 * time.Millisecond, rules.PreLimit{}},
		{"exact", aBucket, `,'counting':'exact'`, rules.CountingExact, 0, 50 * time.Millisecond, rules.PreLimit{}},
		{"a small lease", aBucket, `,'max_lease':7`, rules.CountingLease, 7, 50 * time.Millisecond, rules.PreLimit{Of: "limit", TimesMilli: 1000}},
		{"async", aBucket, `,'counting':'async','sync_ms':20`, rules.CountingAsync, 0, 20 * time.Millisecond, rules.PreLimit{Of: "limit", TimesMilli: 1000}},
		{"local", aLog, `,'counting':'local'`, rules.CountingLocal, 0, 50 * time.Millisecond, rules.PreLimit{}},
		{"report", aBucket, `,'counting':'report','sync_ms':100`, rules.CountingReport, 0, 100 * time.Millisecond, rules.PreLimit{}},
		{"a fair share", aBucket, `,'pre_limit':{'of':'fair_share','times':2.5}`, rules.CountingLease, 1000, 50 * time.Millisecond, rules.PreLimit{Of: "fair_share", TimesMilli: 2500}},
		{"no pre-limit", aBucket, `,'pre_limit':'off'`, rules.CountingLease, 1000, 50 * time.Millisecond, rules.PreLimit{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := compiled(t, "{"+c.rule+c.more+"}")
			if r.Counting() != c.counting || r.Lease() != c.lease || r.Sync() != c.sync || r.PreLimit() != c.before {
				t.Errorf("got %s, lease %d, sync %s, pre-limit %+v", r.Counting(), r.Lease(), r.Sync(), r.PreLimit())
			}
			text, err := json.Marshal(r.Rule())
			if err != nil {
				t.Fatal(err)
			}
			var again rules.Rule
			if err := json.Unmarshal(text, &again); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if again.Counting != r.Rule().Counting || again.PreLimit != r.Rule().PreLimit || again.SyncMS != r.Rule().SyncMS || again.MaxLease != r.Rule().MaxLease {
				t.Errorf("%s does not read back as it was", text)
			}
		})
	}
}

func TestCounting_refused(t *testing.T) {
	for _, c := range []struct{ name, rule, more, want string }{
		{"async log", aLog, `,'counting':'async'`, "counting: a sliding_log is always exact; use exact, or sliding_window"},
		{"lease of a log", aLog, `,'max_lease':5`, "max_lease: is only for counting lease"},
		{"lease of an exact rule", aBucket, `,'counting':'exact','max_lease':5`, "max_lease: is only for counting lease"},
		{"sync of a lease", aBucket, `,'sync_ms':50`, "sync_ms: is only for counting async and report"},
		{"pre-limit of a log", aLog, `,'pre_limit':'off'`, "pre_limit: is only for counting lease and async"},
		{"pre-limit of a local rule", aBucket, `,'counting':'local','pre_limit':{'times':2}`, "pre_limit: is only for counting lease and async"},
		{"pre-limit of none", aBucket, `,'pre_limit':{'times':0}`, "pre_limit.times"},
		{"pre-limit of a day", `'id':'r','covers_all':true,'identity':'k','algorithm':'fixed_window','limit':5,'window':'day'`, `,'pre_limit':{'times':2}`, "pre_limit: a window by the calendar"},
		{"no such counting", aBucket, `,'counting':'leases'`, `counting: "leases" is none of`},
		{"max_lease of an allow", `'id':'r','match':{'a':'b'},'action':'allow'`, `,'max_lease':5`, "max_lease: is only for action limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := rules.ParseRule([]byte(strings.ReplaceAll("{"+c.rule+c.more+"}", "'", `"`)))
			if got := lines(problems); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
