package arch_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// alertsFile are the alert rules that come with the house.
const alertsFile = "../../deploy/alerts.yaml"

// promtool runs Prometheus' own checker in deploy.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		const why = "NOT TESTED: promtool is not installed (on Debian: scripts/install-promtool.sh)"
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = filepath.Dir(alertsFile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertRules(t *testing.T) {
	t.Parallel()
	t.Run("are rules", func(t *testing.T) { t.Parallel(); promtool(t, "check", "rules", "alerts.yaml") })
	t.Run("fire when they should", func(t *testing.T) { t.Parallel(); promtool(t, "test", "rules", "alerts_test.yaml") })
}

// alert is one rule of the file, as far as these tests look.
type alert struct{ name, text string }

// alerts returns the rules, without parsing YAML: promtool does that.
func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var list []alert
	for _, part := range strings.Split(string(text), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		list = append(list, alert{name: strings.TrimSpace(name), text: rest})
	}
	if len(list) == 0 {
		t.Fatal("found no alert")
	}
	return list
}

// An alert is of no use to who is woken by it without what users see, what to do
// and where to read on; and one that was never seen to fire may never do so.
func TestAlertsTellWhatToDo(t *testing.T) {
	t.Parallel()
	tests, err := os.ReadFile("../../deploy/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts(t) {
		for _, want := range []string{"summary: ", "description: ", "severity: "} {
			if !strings.Contains(a.text, want) {
				t.Errorf("%s has no %s", a.name, want)
			}
		}
		if !strings.Contains(string(tests), `alertname="`+a.name+`"`) {
			t.Errorf("%s: no test in which it fires", a.name)
		}
		m := regexp.MustCompile(`runbook: (docs/runbooks/[a-z-]+\.md)(?:#(\S+))?`).FindStringSubmatch(a.text)
		if m == nil {
			t.Errorf("%s has no runbook", a.name)
			continue
		}
		there, err := os.ReadFile("../../" + m[1])
		switch {
		case err != nil:
			t.Errorf("%s: %s is not there", a.name, m[1])
		case m[2] != "" && !slices.Contains(anchors(string(there)), m[2]):
			t.Errorf("%s: %s has no heading #%s", a.name, m[1], m[2])
		case !strings.Contains(string(there), a.name):
			t.Errorf("%s: %s does not name it", a.name, m[1])
		}
	}
}

// collected are the names of all metrics in the code.
func collected(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for _, s := range sources(t) {
		if s.pkg == "metrics" && !s.test {
			for _, name := range metricNames(s.tree) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func TestAlertsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := collected(t)
	name := regexp.MustCompile(`\btallygate_[a-z_]+\b`)
	texts := map[string]string{"docs/metrics.md": documents(t)["docs/metrics.md"]}
	for _, a := range alerts(t) {
		texts[a.name] = a.text
	}
	for where, text := range texts {
		for _, metric := range name.FindAllString(text, -1) {
			plain := metric
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base, ok := strings.CutSuffix(metric, suffix); ok && slices.Contains(known, base) {
					plain = base
				}
			}
			if !slices.Contains(known, plain) && plain != "tallygate_" {
				t.Errorf("%s names %s, which there is not", where, metric)
			}
		}
	}
}

func TestMetricsAndAlertsAreDocumented(t *testing.T) {
	t.Parallel()
	doc := documents(t)["docs/metrics.md"]
	for _, name := range collected(t) {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/metrics.md has no row of %s", name)
		}
	}
	for _, a := range alerts(t) {
		if !strings.Contains(doc, "`"+a.name+"`") {
			t.Errorf("docs/metrics.md has no row of the alert %s", a.name)
		}
	}
}
