package envoyconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// RulesYAML returns the rules as a file that package rules/yaml reads. What is not kept
// of a line stands as a comment above its rule; what is not of a rule, at the top.
func (im *Imported) RulesYAML() ([]byte, error) {
	byRule := map[string][]Note{}
	for _, n := range im.Notes {
		if n.Verdict != Kept {
			byRule[n.Rule] = append(byRule[n.Rule], n)
		}
	}
	var b strings.Builder
	b.WriteString("# Rules imported from a configuration of envoyproxy/ratelimit.\n")
	for _, n := range byRule[""] {
		comment(&b, "", n)
	}
	if len(im.Set.Rules) == 0 {
		b.WriteString("rules: []\n")
		return []byte(b.String()), nil
	}
	b.WriteString("rules:\n")
	for _, r := range im.Set.Rules {
		for _, n := range byRule[r.ID] {
			comment(&b, "  ", n)
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		if err := ruleYAML(&b, raw); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
	}
	return []byte(b.String()), nil
}

func comment(b *strings.Builder, indent string, n Note) {
	b.WriteString(indent + "# " + strings.Join(strings.Fields(n.String()), " ") + "\n")
}

// ruleYAML writes a rule's fields one a line, in the order of its JSON. Lists and maps
// stay as JSON, which is YAML.
func ruleYAML(b *strings.Builder, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // {
		return err
	}
	for lead := "  - "; d.More(); lead = "    " {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value any
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			return err
		}
		text, err := valueYAML(value)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s%v: %s\n", lead, name, text)
	}
	return nil
}

func valueYAML(value any) (string, error) {
	if s, ok := value.(string); ok && bare(s) {
		return s, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}

// bare reports whether a text stands without quotes: what begins and ends with a small
// letter, holds only what ids hold, and is no word that YAML reads as something else.
func bare(s string) bool {
	small := func(c byte) bool { return c >= 'a' && c <= 'z' }
	if s == "" || !small(s[0]) || !small(s[len(s)-1]) {
		return false
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	})
}

// Text returns the report as lines for people, and the sums at the end.
func (im *Imported) Text() string {
	var b strings.Builder
	for _, n := range im.Notes {
		b.WriteString(strings.Join(strings.Fields(n.String()), " "))
		if n.Rule != "" {
			b.WriteString(" [" + n.Rule + "]")
		}
		b.WriteByte('\n')
	}
	s := im.sums()
	fmt.Fprintf(&b, "%d rules; of %d lines %d kept, %d differ, %d ignored\n", s.Rules, s.Kept+s.Differs+s.Ignored, s.Kept, s.Differs, s.Ignored)
	return b.String()
}

// sums count the rules, and the lines by verdict.
type sums struct {
	Rules   int `json:"rules"`
	Kept    int `json:"kept"`
	Differs int `json:"differs"`
	Ignored int `json:"ignored"`
}

func (im *Imported) sums() sums {
	out := sums{Rules: len(im.Set.Rules)}
	for _, n := range im.Notes {
		switch {
		case n.Line == 0:
		case n.Verdict == Kept:
			out.Kept++
		case n.Verdict == Differs:
			out.Differs++
		default:
			out.Ignored++
		}
	}
	return out
}

// JSON returns the report for programs: {"notes":[{"file","line","column","verdict",
// "text","why","rule"},…],"sums":{"rules","kept","differs","ignored"}}.
func (im *Imported) JSON() ([]byte, error) {
	type note struct {
		File    string  `json:"file,omitempty"`
		Line    int     `json:"line,omitempty"`
		Column  int     `json:"column,omitempty"`
		Verdict Verdict `json:"verdict"`
		Text    string  `json:"text,omitempty"`
		Why     string  `json:"why,omitempty"`
		Rule    string  `json:"rule,omitempty"`
	}
	out := struct {
		Notes []note `json:"notes"`
		Sums  sums   `json:"sums"`
	}{Notes: []note{}, Sums: im.sums()}
	for _, n := range im.Notes {
		out.Notes = append(out.Notes, note{n.File, n.Line, n.Column, n.Verdict, n.Text, n.Why, n.Rule})
	}
	return json.MarshalIndent(out, "", "  ")
}
