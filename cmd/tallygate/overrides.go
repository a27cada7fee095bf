package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

func (m *Main) overridesCommand(env []string) *cobra.Command {
	group := &cobra.Command{Use: "overrides", Short: "Other numbers for single keys", Args: noArgs, RunE: help}
	list := m.recordCommand(env, "list", "List the overrides", listOverrides)
	list.Flags().String("rule", "", "only those of this rule")
	completeRuleFlag(list, rulesOfSettings(env))
	add := m.recordCommand(env, "add", "Give a key other numbers than its rule's, or change them", m.addOverride)
	add.Long = "Give a key other numbers than its rule's, or change them. Numbers of a new override that are not given\n" +
		"are the rule's; of one that is there already everything stays that no flag names: numbers, end, reason,\n" +
		"owner. To take a number back, delete the override and add it anew.\n\n" +
		"With --for or --until the override ends by itself, on every pod at the same time."
	add.Example = "  tallygate overrides add --rule growth-global --key acct_7Q2 --rate 25000 --burst 50000 --for 7d --reason 'launch week'\n" +
		"  tallygate overrides add --rule growth-global --key acct_7Q2 --forever"
	addOverrideFlags(add)
	remove := m.recordCommand(env, "delete", "Delete the override of a key", deleteOverride)
	remove.Flags().Bool("yes", false, "do not ask")
	for _, cmd := range []*cobra.Command{add, remove} {
		cmd.Flags().String("rule", "", "rule that the override is of")
		cmd.Flags().StringArray("key", nil, "key as it comes in; again for each value of a rule that counts by several")
		completeRuleFlag(cmd, rulesOfSettings(env))
		addAuthor(cmd)
	}
	group.AddCommand(list, add, remove)
	return group
}

// shownOverride is an override as list and add show it.
type shownOverride struct {
	Version   int64           `json:"version"`
	Revision  int64           `json:"revision"`
	ChangedAt time.Time       `json:"changed_at"`
	Override  json.RawMessage `json:"override"`
}

func listOverrides(cmd *cobra.Command, store *ruleStore, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	rule, _ := cmd.Flags().GetString("rule")
	var all []rulestore.Override
	page := rulestore.OverridePage{Rule: rule, Limit: rulestore.MaxPage}
	for {
		some, err := store.Overrides(cmd.Context(), page)
		if err != nil {
			return err
		}
		all = append(all, some...)
		if len(some) < page.Limit {
			break
		}
		last := some[len(some)-1]
		page.After = rulestore.OverrideName{Rule: last.Rule, ID: last.ID}
	}
	if asData {
		shown := make([]shownOverride, 0, len(all))
		for _, o := range all {
			shown = append(shown, shownOf(&o))
		}
		return writeData(cmd, shown)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RULE\tKEY\tNUMBERS\tENDS\tOWNER\tREASON\tVERSION")
	for _, o := range all {
		ends, owner, reason := "-", "-", "-"
		if body, problems := rules.ParseOverride(o.Body); len(problems) == 0 {
			if !body.ExpiresAt.IsZero() {
				ends = body.ExpiresAt.Format(time.RFC3339)
			}
			owner, reason = orDash(body.Owner), orDash(body.Reason)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", o.Rule, strings.Join(o.Key, ", "), numbersOf(o.Body), ends, owner, reason, o.Version)
	}
	return w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// numbersOf is what an override's body changes, in one cell.
func numbersOf(body json.RawMessage) string {
	fields := fieldsOf(body)
	var parts []string
	for name, value := range fields {
		switch name {
		case "rule", "key", "expires_at", "reason", "owner":
		default:
			parts = append(parts, name+" "+string(value))
		}
	}
	slices.Sort(parts)
	return orDash(strings.Join(parts, ", "))
}

// overrideName reads --rule and --key.
func overrideName(cmd *cobra.Command) (rules.Override, error) {
	rule, _ := cmd.Flags().GetString("rule")
	keys, _ := cmd.Flags().GetStringArray("key")
	if rule == "" || len(keys) == 0 {
		return rules.Override{}, usagef("%s needs --rule and --key", cmd.CommandPath())
	}
	return rules.Override{Rule: rule, Key: keys}, nil
}

func deleteOverride(cmd *cobra.Command, store *ruleStore, _ []string) error {
	o, err := overrideName(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	now, err := store.Override(ctx, o.Rule, o.Key)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Delete the override of %s for %s (%s)?", o.Rule, strings.Join(o.Key, ", "), numbersOf(now.Body))
	if err := confirm(cmd, question); err != nil {
		return err
	}
	_, err = store.Apply(ctx, author(cmd), rulestore.Change{Action: rulestore.ActionLift, Rule: o.Rule, Key: now.Key, IfMatch: now.Version})
	if err != nil {
		return raced(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "override of %s for %s is deleted\n", o.Rule, strings.Join(o.Key, ", "))
	return err
}
