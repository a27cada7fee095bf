package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

// exportCommand writes what rules apply reads.
func (m *Main) exportCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [ID…]",
		Short: "Write a rules file of the rules in the database and their overrides",
		Long: "Write a rules file of the rules in the database and their overrides, all of them or those named:\n" +
			"rules apply finds nothing to change in it. Live rules alone are written; a candidate is named on stderr.",
		Example: "  tallygate rules export > rules.yaml\n  tallygate rules export growth -o json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.onStore(cmd, env, true, func(s *ruleStore) error { return m.export(cmd, s, args) })
		},
		ValidArgsFunction: m.completeRules(env, true),
	}
	addFlags(cmd, governing)
	cmd.Flags().StringP("output", "o", outputYAML, "yaml or json")
	completeWords(cmd, "output", outputYAML, outputJSON)
	return cmd
}

// exported is a rules file.
type exported struct {
	Rules     []json.RawMessage `json:"rules"`
	Overrides []json.RawMessage `json:"overrides,omitempty"`
}

func (m *Main) export(cmd *cobra.Command, store *ruleStore, ids []string) error {
	output, _ := cmd.Flags().GetString("output")
	if err := oneOf(outputYAML, outputJSON)(output); err != nil {
		return usagef("--output: %w", err)
	}
	now, err := store.Whole(cmd.Context())
	if err != nil {
		return err
	}
	only, err := narrowed(&now, ids)
	if err != nil {
		return err
	}
	file, err := exportOf(only)
	if err != nil {
		return err
	}
	text, err := file.text(output)
	if err != nil {
		return err
	}
	set, err := readsBack(text, file)
	if err != nil {
		return err
	}
	for _, p := range rules.Lint(set, m.now()).Faults() {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: rules apply will refuse this: %s\n", p.String())
	}
	for i := range only.Rules {
		if c := only.Rules[i].Candidate; c.Body != nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: the candidate of rule %s (%s) is not in a rules file\n", only.Rules[i].ID, stageOf(c))
		}
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// narrowed is a set of the rules named, all where none is.
func narrowed(now *rulestore.Set, ids []string) (*rulestore.Set, error) {
	if len(ids) == 0 {
		return now, nil
	}
	only := &rulestore.Set{Revision: now.Revision}
	there := map[string]bool{}
	for _, r := range now.Rules {
		if slices.Contains(ids, r.ID) {
			only.Rules, there[r.ID] = append(only.Rules, r), true
		}
	}
	for _, id := range ids {
		if !there[id] {
			return nil, &rulestore.Error{Code: rulestore.NotFound, Rule: id, Message: "is not there"}
		}
	}
	for _, o := range now.Overrides {
		if there[o.Rule] {
			only.Overrides = append(only.Overrides, o)
		}
	}
	return only, nil
}

// exportOf is a rules file of a set. One that cannot be read stops it: a file that
// leaves it out would delete it where somebody applies it with --prune.
func exportOf(now *rulestore.Set) (exported, error) {
	file := exported{Rules: []json.RawMessage{}}
	for _, r := range now.Rules {
		if _, problems := rules.ParseRule(r.Live); len(problems) > 0 {
			return file, fmt.Errorf("rule %s cannot be read, put it again or name the others: %w", r.ID, problems.Err())
		}
		file.Rules = append(file.Rules, r.Live)
	}
	for _, o := range now.Overrides {
		if _, problems := rules.ParseOverride(o.Body); len(problems) > 0 {
			return file, fmt.Errorf("an override of rule %s for %q cannot be read, put it again or name the other rules: %w", o.Rule, o.Key, problems.Err())
		}
		file.Overrides = append(file.Overrides, o.Body)
	}
	return file, nil
}

// text is the file in one of its forms.
func (f *exported) text(output string) ([]byte, error) {
	if output == outputYAML {
		return writeRules(f)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(f)
	return visible(b.Bytes()), err
}

// readsBack reads what was written, and refuses a difference: it would come to light
// when somebody needs the file.
func readsBack(text []byte, file exported) (rules.Set, error) {
	set, problems := yaml.Parse(text)
	var again exported
	for _, r := range set.Rules {
		body, err := json.Marshal(r)
		if err != nil {
			return set, err
		}
		again.Rules = append(again.Rules, body)
	}
	for _, o := range set.Overrides {
		body, err := json.Marshal(o)
		if err != nil {
			return set, err
		}
		again.Overrides = append(again.Overrides, body)
	}
	same := func(a, b json.RawMessage) bool { return fieldDiff(a, b) == "" }
	if !slices.EqualFunc(file.Rules, again.Rules, same) || !slices.EqualFunc(file.Overrides, again.Overrides, same) {
		return set, errors.Join(errors.New("what was written does not read back as the same; nothing was exported"), problems.Err())
	}
	return set, nil
}
