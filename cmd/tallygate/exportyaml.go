package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// plainText is what YAML reads as the same text without quotes, also inside of { } and
// [ ]; plainName the same of a name.
var (
	plainText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)
	plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// yamlWord reports whether some reader of YAML takes a text for something else.
func yamlWord(text string) bool {
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return true
	}
	return false
}

// writeRules writes a rules file as a person would: a line a field, short values in
// one line. Encoders of YAML do not quote what the reader of rules would take for
// another text, so that this is our own; [readsBack] compares.
func writeRules(f *exported) ([]byte, error) {
	var b bytes.Buffer
	for _, part := range []struct {
		name   string
		bodies []json.RawMessage
	}{{"rules", f.Rules}, {"overrides", f.Overrides}} {
		if len(part.bodies) == 0 {
			if part.name == "rules" {
				b.WriteString("rules: []\n")
			}
			continue
		}
		fmt.Fprintf(&b, "%s:\n", part.name)
		for i, body := range part.bodies {
			if i > 0 && part.name == "rules" {
				b.WriteByte('\n')
			}
			if err := writeBody(&b, body); err != nil {
				return nil, err
			}
		}
	}
	return b.Bytes(), nil
}

// writeBody writes one item of a list.
func writeBody(b *bytes.Buffer, body json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if _, err := d.Token(); err != nil { // the {
		return err
	}
	sign := "  - "
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		text, err := flow(d)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s%s: %s\n", sign, name, text) // fields of rules are plain names
		sign = "    "
	}
	return nil
}

// flow reads one value and returns it in one line.
func flow(d *json.Decoder) (string, error) {
	t, err := d.Token()
	if err != nil {
		return "", err
	}
	switch v := t.(type) {
	case string:
		return quoted(v, plainText)
	case json.Delim:
		return flowOf(d, v == '{')
	default:
		return fmt.Sprint(v), nil // a number as it stands, true or false
	}
}

// flowOf reads the rest of a list or an object.
func flowOf(d *json.Decoder, object bool) (string, error) {
	var parts []string
	for d.More() {
		name := ""
		if object {
			t, err := d.Token()
			if err != nil {
				return "", err
			}
			if name, err = quoted(fmt.Sprint(t), plainName); err != nil {
				return "", err
			}
			name += ": "
		}
		value, err := flow(d)
		if err != nil {
			return "", err
		}
		parts = append(parts, name+value)
	}
	if _, err := d.Token(); err != nil { // the end of it
		return "", err
	}
	if object {
		return "{" + strings.Join(parts, ", ") + "}", nil
	}
	return "[" + strings.Join(parts, ", ") + "]", nil
}

// quoted is a text, in quotes unless it is one without.
func quoted(text string, plain *regexp.Regexp) (string, error) {
	if plain.MatchString(text) && !yamlWord(text) {
		return text, nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(text)
	return string(visible(bytes.TrimSpace(b.Bytes()))), err
}

// visible escapes the control characters that JSON does not: a rules file has none.
func visible(text []byte) []byte {
	var b bytes.Buffer
	for _, c := range string(text) {
		if c >= 0x7F && c <= 0x9F || c == 0xFEFF {
			fmt.Fprintf(&b, `\u%04x`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.Bytes()
}
