package metrics_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/metrics"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// far is a store elsewhere, which says yes and leases ten tokens.
type far struct{ err error }

func (f far) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	if f.err != nil {
		return nil, f.err
	}
	grants := make([]store.Grant, len(ops))
	for i := range ops {
		grants[i] = store.Grant{OK: true, Lease: min(10, ops[i].Want), Generation: 1, LeaseMS: 900, Remaining: 50, NowMS: time.Now().UnixMilli(), Limit: ops[i].Limit}
	}
	return grants, nil
}

func bucket(id string) rules.Rule {
	return rules.Rule{
		ID: id, CoversAll: true, Identity: []string{"api_key"}, Algorithm: limit.TokenBucket,
		Numbers: rules.Numbers{Rate: 1, PerS: 3600, Burst: 5},
	}
}

// limiter returns a limiter over a store; nil is one in this process.
func limiter(t *testing.T, s store.Store, list ...rules.Rule) *tallygate.Limiter {
	t.Helper()
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: list}, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func check(t *testing.T, l *tallygate.Limiter, route string) {
	t.Helper()
	attributes := map[string]string{"api_key": "acct_7Q2"}
	if route != "" {
		attributes["route"] = route
	}
	if _, err := l.Check(context.Background(), tallygate.Check{Attributes: attributes}); err != nil {
		t.Fatal(err)
	}
}

// scrape reads the exposition with a strict parser: series, with their value.
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			series[name+labels(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return series
}

func labels(m *dto.Metric) string {
	var list []string
	for _, l := range m.GetLabel() {
		list = append(list, l.GetValue())
	}
	return "{" + strings.Join(list, ",") + "}"
}

// The names keep to the rules of Prometheus, and none appears without traffic but
// those whose first increase somebody waits for.
func TestCollector_names(t *testing.T) {
	t.Parallel()
	l := limiter(t, far{}, bucket("r"))
	check(t, l, "GET /v1/labels")
	problems, err := testutil.CollectAndLint(metrics.NewCollector(l))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for series := range scrape(t, metrics.NewCollector(l)) {
		if !strings.HasPrefix(series, "tallygate_") {
			t.Errorf("%s has no prefix", series)
		}
	}
}

// What happened is what is shown.
func TestCollector_values(t *testing.T) {
	t.Parallel()
	shadow := bucket("quiet")
	shadow.Mode = rules.ModeShadow
	l := limiter(t, nil, bucket("loud"), shadow)
	c := metrics.NewCollector(l)
	for range 8 {
		check(t, l, "GET /v1/labels")
	}
	got := scrape(t, c)
	for series, want := range map[string]float64{
		"tallygate_checks_total{store,allow}":                5,
		"tallygate_checks_total{store,deny}":                 3,
		"tallygate_checks_total{none,allow}":                 0,
		"tallygate_route_checks_total{GET /v1/labels,allow}": 5,
		"tallygate_route_checks_total{GET /v1/labels,deny}":  3,
		"tallygate_entries_total{loud,store,deny}":           3,
		"tallygate_entries_total{quiet,store,shadow_deny}":   3,
		"tallygate_denied_checks_total{loud}":                3,
		"tallygate_denied_checks_total{quiet}":               0,
		"tallygate_shadow_denied_total{quiet}":               3,
		"tallygate_spent_tokens_total{loud}":                 5,
		"tallygate_fail_open_total{loud}":                    0,
		"tallygate_check_errors_total{store_timeout}":        0,
		"tallygate_memory_store_buckets{}":                   2,
		"tallygate_snapshot_revision{}":                      1,
		"tallygate_snapshot_rules{}":                         2,
		"tallygate_store_errors_total{timeout}":              0,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (there: %t), want %v", series, value, ok, want)
		}
	}
}

// What a candidate would have said, and how many new keys had to share a bucket.
func TestCollector_trials(t *testing.T) {
	t.Parallel()
	live, next := bucket("r"), bucket("r")
	live.MaxNewKeysPerS, next.Burst = 1, live.Burst-2
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{live}, Candidates: []rules.Candidate{{Rule: next, Stage: rules.StageShadow}}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		t.Fatal(err)
	}
	for range live.Burst + 1 {
		check(t, l, "")
	}
	for _, key := range []string{"b", "c", "d"} {
		if _, err := l.Check(context.Background(), tallygate.Check{Attributes: map[string]string{"api_key": key}}); err != nil {
			t.Fatal(err)
		}
	}
	got := scrape(t, metrics.NewCollector(l))
	for series, want := range map[string]float64{
		"tallygate_candidate_checks_total{allow,allow,r}": float64(next.Burst) + 3,
		"tallygate_candidate_checks_total{deny,allow,r}":  2,
		"tallygate_candidate_checks_total{allow,deny,r}":  0,
		"tallygate_candidate_checks_total{deny,deny,r}":   1,
		"tallygate_new_keys_overflow_total{r}":            3,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (there: %t), want %v", series, value, ok, want)
		}
	}
}

// What became of reservations.
func TestCollector_reservations(t *testing.T) {
	t.Parallel()
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{bucket("r"), bucket("unreserved")}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		t.Fatal(err)
	}
	one := tallygate.Check{Entries: []tallygate.Entry{{Rule: "r", Key: []string{"k"}}}}
	for range 2 {
		_, r, err := l.Reserve(context.Background(), one, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Commit(context.Background(), r, 1); err != nil {
			t.Fatal(err)
		}
	}
	got := scrape(t, metrics.NewCollector(l))
	for series, want := range map[string]float64{
		"tallygate_reservations_total{reserved,r}":  2,
		"tallygate_reservations_total{denied,r}":    0,
		"tallygate_reservations_total{committed,r}": 2,
		"tallygate_reservations_total{canceled,r}":  0,
		"tallygate_reservations_total{late,r}":      0,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (there: %t), want %v", series, value, ok, want)
		}
	}
	if _, ok := got["tallygate_reservations_total{reserved,unreserved}"]; ok {
		t.Error("a rule without reservations has a series")
	}
}

// A store elsewhere: its calls, their time, and the leases.
func TestCollector_store(t *testing.T) {
	t.Parallel()
	l := limiter(t, far{}, bucket("r"))
	c := metrics.NewCollector(l)
	for range 3 { // the first is too early to know what to lease
		check(t, l, "")
	}
	got := scrape(t, c)
	for series, want := range map[string]float64{
		"tallygate_store_calls_total{}":           2,
		"tallygate_store_call_seconds{}":          2,
		"tallygate_checks_total{lease,allow}":     1,
		"tallygate_checks_total{store,allow}":     2,
		"tallygate_lease_granted_tokens_total{r}": 1,
		"tallygate_lease_idle_tokens{r}":          0,
		"tallygate_lease_out_tokens{r}":           1,
		"tallygate_pods{}":                        1,
		"tallygate_local_buckets{}":               1,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (there: %t), want %v", series, value, ok, want)
		}
	}
	away := limiter(t, far{err: &store.StoreError{Kind: store.Timeout, Err: context.DeadlineExceeded}}, bucket("r"))
	c = metrics.NewCollector(away)
	check(t, away, "")
	got = scrape(t, c)
	if got["tallygate_fail_open_total{r}"] != 1 || got["tallygate_degraded_checks_total{store_timeout}"] != 1 || got["tallygate_store_errors_total{timeout}"] != 1 || got["tallygate_store_call_seconds{}"] != 1 {
		t.Error(slices.Sorted(maps.Keys(got)))
	}
	if _, there := got["tallygate_store_clock_offset_seconds{}"]; there {
		t.Error("the clock of a store that never answered is known")
	}
}

// The histogram of store calls is a native one as well.
func TestCollector_nativeHistogram(t *testing.T) {
	t.Parallel()
	l := limiter(t, far{}, bucket("r"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector(l))
	check(t, l, "")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil && (len(h.GetBucket()) == 0 || h.Schema == nil || len(h.GetPositiveSpan()) == 0) {
			t.Errorf("%s is not both: %v", f.GetName(), h)
		}
	}
}

// MET-02: odd rule ids are refused, odd routes are shown as they are or not at all;
// the exposition stays well-formed.
func TestCollector_MET02_oddNames(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a.b/c:d", "x\"y", "line\nbreak", strings.Repeat("x", 300)} {
		if _, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{bucket(id)}}, 1, time.Now()); problems.Err() == nil {
			t.Errorf("rule id %q is taken", id)
		}
	}
	l := limiter(t, nil, bucket("a.b-c_D"))
	c := metrics.NewCollector(l)
	odd := []string{`GET /{a}/"b"`, "line\nbreak", `back\slash`, "ümlaut", "{},=", "a.b/c:d"}
	for _, route := range append(odd, "bad\xff", strings.Repeat("x", 300)) {
		check(t, l, route)
	}
	got := scrape(t, c)
	for i, route := range odd {
		verdict := "allow"
		if i >= 5 {
			verdict = "deny"
		}
		if n := got["tallygate_route_checks_total{"+route+","+verdict+"}"]; n != 1 {
			t.Errorf("route %q has %v checks", route, n)
		}
	}
	if n := got["tallygate_route_checks_total{other,deny}"]; n != 2 {
		t.Errorf("%v others, want 2", n)
	}
	if n := got["tallygate_spent_tokens_total{a.b-c_D}"]; n != 5 {
		t.Errorf("%v spent by the rule", n)
	}
}

// However many rules and routes there are, the series are bounded.
func TestCollector_isBounded(t *testing.T) {
	t.Parallel()
	list := []rules.Rule{bucket("limited")}
	for i := range 1200 {
		list = append(list, rules.Rule{ID: fmt.Sprintf("rule-%d", i), Action: rules.ActionAllow, Match: map[string]string{"plan": fmt.Sprint(i)}})
	}
	l := limiter(t, nil, list...)
	for i := range 3000 {
		check(t, l, fmt.Sprintf("GET /v1/%d", i))
	}
	const rulesNamed, routesNamed, perRule, perRoute, rest = 1001, 1002, 12, 2, 60
	if got := testutil.CollectAndCount(metrics.NewCollector(l)); got > rulesNamed*perRule+routesNamed*perRoute+rest {
		t.Errorf("%d series", got)
	}
}

// Two limiters do not share anything: nothing is registered by itself.
func TestCollector_standsAlone(t *testing.T) {
	t.Parallel()
	one, two := limiter(t, nil, bucket("one")), limiter(t, nil, bucket("two"))
	check(t, one, "")
	if n := scrape(t, metrics.NewCollector(two))["tallygate_checks_total{store,allow}"]; n != 0 {
		t.Errorf("%v checks of another limiter", n)
	}
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "tallygate") {
			t.Errorf("%s is in the default registry", f.GetName())
		}
	}
}
