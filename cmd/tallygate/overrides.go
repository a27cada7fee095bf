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
	add := m.recordCommand(env, "add", "Give a key other numbers than its rule's, or change them", m.addOverride)
	add.Long = "Give a key other numbers than its rule's, or change them. Numbers that are not given are the rule's.\n" +
		"With --for or --until the override ends by itself, on every pod at the same time."
	add.Example = "  tallygate overrides add --rule growth-global --key acct_7Q2 --rate 25000 --burst 50000 --for 168h --reason 'launch week'"
	addOverrideFlags(add)
	remove := m.recordCommand(env, "delete", "Delete the override of a key", deleteOverride)
	for _, cmd := range []*cobra.Command{add, remove} {
		cmd.Flags().String("rule", "", "rule that the override is of")
		cmd.Flags().StringArray("key", nil, "key as it comes in; again for each value of a rule that counts by several")
		_ = cmd.RegisterFlagCompletionFunc("rule", m.completeRules(env)) // the flag is there
		addAuthor(cmd)
	}
	group.AddCommand(list, add, remove)
	return group
}

func addOverrideFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, name := range []string{"rate", "per-s", "burst", "limit", "window-s", "max-cost"} {
		flags.Int64(name, 0, strings.ReplaceAll(name, "-", "_")+" in place of the rule's")
	}
	flags.Duration("for", 0, "end after this time")
	flags.String("until", "", "end at this time, such as 2026-12-24T18:00:00Z")
	flags.String("reason", "", "what it is for")
	flags.String("owner", "", "who answers for it")
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
			shown = append(shown, shownOverride{Version: o.Version, Revision: o.Revision, ChangedAt: o.ChangedAt, Override: o.Body})
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

func (m *Main) addOverride(cmd *cobra.Command, store *ruleStore, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	o, err := m.readOverride(cmd)
	if err != nil {
		return err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	change := rulestore.Change{Action: rulestore.ActionOverride, Rule: o.Rule, Key: o.Key, Body: body}
	now, err := store.Override(ctx, o.Rule, o.Key)
	switch {
	case err == nil:
		change.IfMatch = now.Version
	case rulestore.CodeOf(err) != rulestore.NotFound:
		return err
	}
	applied, err := store.Apply(ctx, author(cmd), change)
	if err != nil {
		return raced(err)
	}
	printWarnings(cmd, &applied)
	made := &applied.Results[0].Override
	if asData {
		return writeData(cmd, shownOverride{Version: made.Version, Revision: made.Revision, ChangedAt: made.ChangedAt, Override: made.Body})
	}
	ends := "for good"
	if !o.ExpiresAt.IsZero() {
		ends = "until " + o.ExpiresAt.Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "override of %s for %s: %s, %s, at version %d\n", o.Rule, strings.Join(o.Key, ", "), numbersOf(body), ends, made.Version)
	return err
}

// readOverride makes an override of the flags.
func (m *Main) readOverride(cmd *cobra.Command) (rules.Override, error) {
	flags := cmd.Flags()
	o, err := overrideName(cmd)
	if err != nil {
		return o, err
	}
	for name, number := range map[string]*int64{
		"rate": &o.Rate, "per-s": &o.PerS, "burst": &o.Burst, "limit": &o.Limit, "window-s": &o.WindowS, "max-cost": &o.MaxCost,
	} {
		*number, _ = flags.GetInt64(name)
		if flags.Changed(name) && *number < 1 {
			return o, usagef("--%s %d is below 1", name, *number)
		}
	}
	o.Reason, _ = flags.GetString("reason")
	o.Owner, _ = flags.GetString("owner")
	after, _ := flags.GetDuration("for")
	until, _ := flags.GetString("until")
	switch {
	case flags.Changed("for") && until != "":
		return o, usagef("--for and --until exclude each other")
	case flags.Changed("for") && after <= 0:
		return o, usagef("--for %s is not in the future", after)
	case flags.Changed("for"):
		o.ExpiresAt = m.now().Add(after).UTC().Truncate(time.Millisecond)
	case until != "":
		if o.ExpiresAt, err = time.Parse(time.RFC3339, until); err != nil {
			return o, usagef("--until %q is no time such as 2026-12-24T18:00:00Z", until)
		}
	}
	return o, nil
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
	_, err = store.Apply(ctx, author(cmd), rulestore.Change{Action: rulestore.ActionLift, Rule: o.Rule, Key: now.Key, IfMatch: now.Version})
	if err != nil {
		return raced(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "override of %s for %s is deleted\n", o.Rule, strings.Join(o.Key, ", "))
	return err
}
