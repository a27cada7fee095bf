package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// overrideFlag is a flag of overrides add that sets one field of the body.
type overrideFlag struct {
	name string
	// number fields are written as they stand, others as text.
	number bool
	help   string
}

func overrideFlags() []overrideFlag {
	const instead = " in place of the rule's"
	return []overrideFlag{
		{"rate", true, "rate" + instead},
		{"per-s", true, "per_s" + instead + ", seconds"},
		{"burst", true, "burst" + instead},
		{"limit", true, "limit" + instead},
		{"window-s", true, "window_s" + instead + ", seconds"},
		{"window", false, "window" + instead + ": day, week or month"},
		{"tz", false, "tz" + instead + ", such as Europe/Berlin"},
		{"align", false, "align" + instead + ": clock or first_request"},
		{"burst-factor", true, "burst_factor" + instead + ", such as 1.5"},
		{"max-cost", true, "max_cost" + instead},
		{"reason", false, "what it is for"},
		{"owner", false, "who answers for it"},
	}
}

func addOverrideFlags(cmd *cobra.Command) {
	for _, f := range overrideFlags() {
		switch {
		case f.name == "burst-factor":
			cmd.Flags().Float64(f.name, 0, f.help)
		case f.number:
			cmd.Flags().Int64(f.name, 0, f.help)
		default:
			cmd.Flags().String(f.name, "", f.help)
		}
	}
	completeWords(cmd, "window", "day", "week", "month")
	completeWords(cmd, "align", "clock", "first_request")
	addDays(cmd, "for", "end after this time, such as 7d or 12h")
	cmd.Flags().String("until", "", "end at this time, such as 2026-12-24T18:00:00Z")
	cmd.Flags().Bool("forever", false, "do not end by itself")
}

func (m *Main) addOverride(cmd *cobra.Command, store *ruleStore, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	name, err := overrideName(cmd)
	if err != nil {
		return err
	}
	given, err := m.givenFields(cmd)
	if err != nil {
		return err
	}
	now, err := store.Override(cmd.Context(), name.Rule, name.Key)
	if err != nil && rulestore.CodeOf(err) != rulestore.NotFound {
		return err
	}
	change, err := changed(&now, name, given)
	if err != nil {
		return err
	}
	if now.Exists() && fieldDiff(now.Body, change.Body) == "" {
		if asData {
			return writeData(cmd, shownOf(&now))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "override of %s for %s is so already, at version %d: nothing was changed\n", now.Rule, strings.Join(now.Key, ", "), now.Version)
		return err
	}
	applied, err := store.Apply(cmd.Context(), author(cmd), change)
	if err != nil {
		return raced(err)
	}
	printWarnings(cmd, &applied)
	made := &applied.Results[0].Override
	if asData {
		return writeData(cmd, shownOf(made))
	}
	if now.Exists() {
		_, _ = fmt.Fprint(cmd.OutOrStdout(), indent(fieldDiff(now.Body, made.Body)))
	}
	return m.printOverride(cmd.OutOrStdout(), made)
}

// shownOf is an override as JSON.
func shownOf(o *rulestore.Override) shownOverride {
	return shownOverride{Version: o.Version, Revision: o.Revision, ChangedAt: o.ChangedAt, Override: o.Body}
}

// printOverride says what an override is now.
func (m *Main) printOverride(out io.Writer, o *rulestore.Override) error {
	ends := "for good"
	if body, problems := rules.ParseOverride(o.Body); len(problems) == 0 && !body.ExpiresAt.IsZero() {
		ends = "until " + body.ExpiresAt.Format(time.RFC3339)
		if !body.ExpiresAt.After(m.now()) {
			ends += ", which is over: --for, --until or --forever gives it another end"
		}
	}
	_, err := fmt.Fprintf(out, "override of %s for %s: %s, %s, at version %d\n", o.Rule, strings.Join(o.Key, ", "), numbersOf(o.Body), ends, o.Version)
	return err
}

// changed is the change that gives an override the fields which are given, and leaves
// the others of one that is there.
func changed(now *rulestore.Override, name rules.Override, given map[string]json.RawMessage) (rulestore.Change, error) {
	body, err := json.Marshal(name)
	if err != nil {
		return rulestore.Change{}, err
	}
	change := rulestore.Change{Action: rulestore.ActionOverride, Rule: name.Rule, Key: name.Key}
	if now.Exists() {
		change.IfMatch = now.Version
		// One that cannot be read is replaced: there is nothing in it to keep.
		if _, problems := rules.ParseOverride(now.Body); len(problems) == 0 {
			body, change.Key = now.Body, now.Key
		}
	}
	fields := fieldsOf(body)
	for field, value := range given {
		if value == nil {
			delete(fields, field)
			continue
		}
		fields[field] = value
	}
	if body, err = json.Marshal(fields); err != nil {
		return change, err
	}
	// In the one form in which it is stored; what is wrong with it the store says.
	if o, problems := rules.ParseOverride(body); len(problems) == 0 {
		body, err = json.Marshal(o)
	}
	change.Body = body
	return change, err
}

// givenFields are the fields that flags name; nil takes one away.
func (m *Main) givenFields(cmd *cobra.Command) (map[string]json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	for _, f := range overrideFlags() {
		flag := cmd.Flags().Lookup(f.name)
		if !flag.Changed {
			continue
		}
		field, text := strings.ReplaceAll(f.name, "-", "_"), flag.Value.String()
		switch number, err := strconv.ParseFloat(text, 64); {
		case f.number && (err != nil || !(number >= 1)): // NaN is none
			return nil, usagef("--%s %s is below 1", f.name, text)
		case !f.number && text == "":
			given[field] = nil
			continue
		case !f.number:
			quoted, err := json.Marshal(text)
			if err != nil {
				return nil, err
			}
			text = string(quoted)
		}
		given[field] = json.RawMessage(text)
	}
	end, named, err := m.givenEnd(cmd)
	if err != nil || !named {
		return given, err
	}
	given["expires_at"] = nil
	if !end.IsZero() {
		given["expires_at"], err = json.Marshal(end)
	}
	return given, err
}

// givenEnd is when the override is to end, where flags say; the zero time is never.
func (m *Main) givenEnd(cmd *cobra.Command) (end time.Time, named bool, err error) {
	flags := cmd.Flags()
	after, _ := flags.GetDuration("for")
	until, _ := flags.GetString("until")
	forever, _ := flags.GetBool("forever")
	count := 0
	for _, name := range []string{"for", "until", "forever"} {
		if flags.Changed(name) {
			count++
		}
	}
	switch {
	case count == 0:
		return end, false, nil
	case count > 1:
		return end, false, usagef("--for, --until and --forever exclude each other")
	case flags.Changed("forever"):
		return end, forever, nil
	case flags.Changed("for") && after <= 0:
		return end, false, usagef("--for %s is not in the future", after)
	case flags.Changed("for"):
		return m.now().Add(after).UTC().Truncate(time.Millisecond), true, nil
	}
	if end, err = time.Parse(time.RFC3339, until); err != nil {
		return end, false, usagef("--until %q is no time such as 2026-12-24T18:00:00Z", until)
	}
	return end, true, nil
}
