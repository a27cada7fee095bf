package rules_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/rules"
)

func TestOnChangeAndMaxNewKeys(t *testing.T) {
	t.Parallel()
	const (
		fixed   = `'id':'r','match':{'a':'b'},'identity':'k','algorithm':'fixed_window','limit':5,'window_s':60`
		sliding = `'id':'r','match':{'a':'b'},'identity':'k','algorithm':'sliding_window','limit':5,'window_s':60`
		entries = `'id':'r','match':{'a':'b'},'identity':'k','algorithm':'sliding_log','limit':5,'window_s':60`
		tokens  = `'id':'r','match':{'a':'b'},'identity':'k','algorithm':'token_bucket','rate':5,'burst':6`
	)
	for _, tt := range []struct {
		name, fields string
		next         bool
		most         int64
		want         string // the fault; "" for none
	}{
		{"neither", fixed, false, 0, ""},
		{"a fixed window", fixed + `,'on_change':'next_window'`, true, 0, ""},
		{"a day", strings.Replace(fixed, `'window_s':60`, `'window':'day'`, 1) + `,'on_change':'next_window'`, true, 0, ""},
		{"a sliding window", sliding + `,'on_change':'next_window'`, true, 0, ""},
		{"at once", sliding + `,'on_change':'now'`, false, 0, ""},
		{"a log", entries + `,'on_change':'next_window'`, false, 0, "on_change: is only for fixed_window and sliding_window, not sliding_log; remove it"},
		{"a bucket", tokens + `,'on_change':'now'`, false, 0, "on_change: is only for fixed_window and sliding_window, not token_bucket; remove it"},
		{"few keys", tokens + `,'max_new_keys_per_s':20`, false, 20, ""},
		{"all keys", tokens + `,'max_new_keys_per_s':'off'`, false, 0, ""},
		{"deny", `'id':'r','match':{'a':'b'},'action':'deny','max_new_keys_per_s':5`, false, 0, "max_new_keys_per_s: is only for action limit; action deny counts nothing; remove it"},
		{"allow", `'id':'r','match':{'a':'b'},'action':'allow','on_change':'now'`, false, 0, "on_change: is only for action limit; action allow counts nothing; remove it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, problems := rules.ParseRule([]byte(strings.ReplaceAll("{"+tt.fields+"}", "'", `"`)))
			if got := lines(problems); got != tt.want {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			if tt.want != "" {
				return
			}
			c := mustCompile(t, nil, rules.Set{Rules: []rules.Rule{r}}, 1, start).Rule("r")
			if c.NextWindow() != tt.next || c.MaxNewKeys() != tt.most {
				t.Errorf("got %v and %d, want %v and %d", c.NextWindow(), c.MaxNewKeys(), tt.next, tt.most)
			}
		})
	}
	r := mustRule(t, "{"+tokens+"}")
	r.MaxNewKeysPerS = -1
	if got := lines(r.Validate()); got != "max_new_keys_per_s: -1 is below 1; raise it" {
		t.Errorf("got %s", got)
	}
}
