package envoyconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/envoyconfig"
)

// golden has one of everything that decides which limit a descriptor meets. The
// numbers name the limits.
const golden = `domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: database
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: path
    value: /a*
    rate_limit: {unit: second, requests_per_unit: 3}
  - key: path
    value: /ab*
    rate_limit: {unit: second, requests_per_unit: 4}
  - key: path
    value: "*/mid/*/end"
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: path
    value: /abc
    rate_limit: {unit: second, requests_per_unit: 6}
  - key: path
    rate_limit: {unit: second, requests_per_unit: 7}
  - key: outer
    value: one
    descriptors:
      - key: inner
        value: a
        rate_limit: {unit: second, requests_per_unit: 8}
  - key: outer
    rate_limit: {unit: second, requests_per_unit: 9}
    descriptors:
      - key: inner
        rate_limit: {unit: second, requests_per_unit: 10}
      - key: inner
        value: free
  - key: shared
    value: files/*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 11}
    descriptors:
      - key: type
        rate_limit: {unit: minute, requests_per_unit: 12}
`

func TestMatchGolden(t *testing.T) {
	t.Parallel()
	tree := parse(t, golden)
	for _, tt := range []struct {
		name, request string
		limit         uint32 // 0 for none
		counter       string
	}{
		{"exact", "database=users", 1, "mongo_cps_database_users_"},
		{"default", "database=orders", 2, "mongo_cps_database_orders_"},
		{"empty value falls to the default", "database", 2, "mongo_cps_database__"},
		{"exact beats wildcard", "path=/abc", 6, "mongo_cps_path_/abc_"},
		{"first wildcard of the file", "path=/abd", 3, "mongo_cps_path_/abd_"},
		{"wildcard in the middle", "path=x/mid/y/end", 5, "mongo_cps_path_x/mid/y/end_"},
		{"prefix and suffix may not overlap", "path=/mid/end", 7, "mongo_cps_path_/mid/end_"},
		{"wildcard beats default", "path=/", 7, "mongo_cps_path_/_"},
		{"deeper", "outer=one,inner=a", 8, "mongo_cps_outer_one_inner_a_"},
		{"no backtracking", "outer=one,inner=b", 0, ""},
		{"default with children", "outer=two,inner=b", 10, "mongo_cps_outer_two_inner_b_"},
		{"node in the middle has its own", "outer=two", 9, "mongo_cps_outer_two_"},
		{"node in the middle has none", "outer=one", 0, ""},
		{"whitelisted", "outer=two,inner=free", 0, ""},
		{"too deep", "database=users,host=a", 0, ""},
		{"unknown key", "nobody=x", 0, ""},
		{"shared", "shared=files/a", 11, "mongo_cps_shared_files/*_"},
		{"shared above a child", "shared=files/a,type=pdf", 12, "mongo_cps_shared_files/*_type_pdf_"},
		{"text of another key", "database_users=x", 1, "mongo_cps_database_users_x_"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, known := tree.Match("mongo_cps", request(tt.request))
			switch {
			case !known:
				t.Error("the domain is unknown")
			case m == nil:
				if tt.limit != 0 {
					t.Errorf("no limit, want %d", tt.limit)
				}
			case m.Limit.RequestsPerUnit != tt.limit || m.CounterKey("mongo_cps") != tt.counter:
				t.Errorf("limit %d by %q, want %d by %q", m.Limit.RequestsPerUnit, m.CounterKey("mongo_cps"), tt.limit, tt.counter)
			}
		})
	}
}

func TestOverrideBeatsTheTree(t *testing.T) {
	t.Parallel()
	tree := parse(t, golden)
	req := request("database=users")
	req.Override = &envoyconfig.Limit{RequestsPerUnit: 42, Unit: envoyconfig.Hour}
	if m, known := tree.Match("mongo_cps", req); !known || m == nil || m.Limit.RequestsPerUnit != 42 || m.Node != nil {
		t.Errorf("got %+v, want the override", m)
	}
	if m, known := tree.Match("nowhere", req); known || m != nil {
		t.Errorf("unknown domain: got %+v, want nothing", m)
	}
}

const replacing = `domain: d
descriptors:
  - key: user
    rate_limit: {name: base, unit: second, requests_per_unit: 1}
  - key: plan
    value: gold
    rate_limit: {name: gold, replaces: [{name: base}], unit: second, requests_per_unit: 2}
  - key: plan
    value: free
    rate_limit: {unlimited: true, replaces: [{name: gold}, {name: open}]}
  - key: open
    rate_limit: {unlimited: true, name: open}
  - key: tier
    shadow_mode: true
    rate_limit: {replaces: [{name: base}], unit: second, requests_per_unit: 3}
`

func TestMatchAllReplaces(t *testing.T) {
	t.Parallel()
	tree := parse(t, replacing)
	for _, tt := range []struct{ name, requests, want string }{
		{"alone", "user=a", "user"},
		{"replaced", "user=a plan=gold", "- plan=gold"},
		{"replaced by one that is replaced", "user=a plan=gold plan=free", "- - plan=free"},
		{"by an unlimited one", "plan=gold plan=free", "- plan=free"},
		{"an unlimited one stays", "open=x plan=free", "open plan=free"},
		{"by a shadow", "user=a tier=x", "- tier"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var reqs []envoyconfig.Request
			for s := range strings.FieldsSeq(tt.requests) {
				reqs = append(reqs, request(s))
			}
			var got []string
			for _, m := range tree.MatchAll("d", reqs) {
				if m == nil {
					got = append(got, "-")
				} else {
					got = append(got, m.Node.String())
				}
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got %s, want %s", g, tt.want)
			}
		})
	}
}

func TestOverLimit(t *testing.T) {
	t.Parallel()
	plain := &envoyconfig.Match{Limit: &envoyconfig.Limit{}}
	quota := &envoyconfig.Match{Limit: &envoyconfig.Limit{}, Quota: true}
	shadow := &envoyconfig.Match{Limit: &envoyconfig.Limit{}, Shadow: true}
	for _, tt := range []struct {
		name    string
		matches []*envoyconfig.Match
		over    []bool
		want    bool
	}{
		{"nothing matched", []*envoyconfig.Match{nil}, []bool{true}, false},
		{"one over", []*envoyconfig.Match{plain, quota}, []bool{true, false}, true},
		{"shadow leaf beside an enforcing one", []*envoyconfig.Match{shadow, plain}, []bool{true, false}, false},
		{"one quota of two over", []*envoyconfig.Match{quota, quota}, []bool{true, false}, false},
		{"all quotas over", []*envoyconfig.Match{quota, plain, quota}, []bool{true, false, true}, true},
	} {
		if got := envoyconfig.OverLimit(tt.matches, tt.over); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestMetric(t *testing.T) {
	t.Parallel()
	tree := parse(t, `domain: d
descriptors:
  - key: a
    value_to_metric: true
    descriptors:
      - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}
      - {key: c, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: s, value: x*, share_threshold: true, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	for req, want := range map[string]string{"a=1,b=2": "d.a_1.b", "a=1,c=2": "d.a_1.c_2", "s=xy": "d.s_x*"} {
		if m, _ := tree.Match("d", request(req)); m == nil || m.Metric != want {
			t.Errorf("%s: %+v, want metric %s", req, m, want)
		}
	}
}

func ExampleTree_Match() {
	tree, err := envoyconfig.Parse([]envoyconfig.File{{Name: "limits.yaml", Data: []byte(golden)}}, envoyconfig.ReadOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, _ := tree.Match("mongo_cps", request("database=users"))
	fmt.Println(m.Limit.RequestsPerUnit, m.Limit.Unit, m.CounterKey("mongo_cps"))
	// Output: 1 second mongo_cps_database_users_
}
