package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// recordCommands are the subcommands of rules that work on a database.
func (m *Main) recordCommands(env []string) []*cobra.Command {
	list := m.recordCommand(env, "list", "List the rules in the database", listRules)
	get := m.recordCommand(env, "get ID", "Show a rule as it is in force; -o json shows its candidate and versions too", getRule)
	get.Flags().Int64("version", 0, "as it was live at this version (default the newest)")
	history := m.recordCommand(env, "history ID", "List the versions of a rule, who made them and why", ruleHistory)
	history.Flags().Int("limit", rulestore.DefaultPage, "most versions to list, newest first")
	diff := m.recordCommand(env, "diff ID", "Show what changed between two versions of a rule", ruleDiff)
	diff.Flags().Int64("from", 0, "version to compare from (default the one before)")
	diff.Flags().Int64("to", 0, "version to compare to (default the newest)")
	remove := m.recordCommand(env, "delete ID", "Delete a rule and its overrides; its history stays", deleteRule)
	remove.Flags().Bool("yes", false, "do not ask")
	addAuthor(remove)
	return append(m.stageCommands(env), m.applyCommand(env), m.exportCommand(env), list, get, history, diff, remove)
}

// recordCommand is a command on a database that must be there.
func (m *Main) recordCommand(env []string, use, short string, run func(*cobra.Command, *ruleStore, []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs}
	if strings.Contains(use, " ") {
		cmd.Args, cmd.ValidArgsFunction = oneArg("rule's id"), m.completeRules(env, false)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return m.onStore(cmd, env, true, func(s *ruleStore) error { return run(cmd, s, args) })
	}
	addFlags(cmd, governing)
	if !strings.HasPrefix(use, "delete") {
		addOutput(cmd)
	}
	return cmd
}

// onStore opens the database of the settings for one command. A file that must be
// there is not made: a misspelt path would look like a database without rules.
func (m *Main) onStore(cmd *cobra.Command, env []string, there bool, run func(*ruleStore) error) (err error) {
	v, err := load(cmd, env)
	if err != nil {
		return err
	}
	where := v.String("rules")
	if path, ok := strings.CutPrefix(where, fileScheme); ok {
		return usagef("the rules are in the file %s: edit it, and check it with tallygate rules lint; this command is for --rules sqlite:… and postgres://…", path)
	}
	if path, ok := strings.CutPrefix(where, envoyScheme); ok {
		return usagef("the rules are made of the files in %s: edit those; tallygate rules import envoy-ratelimit shows what becomes of them", path)
	}
	if path, ok := strings.CutPrefix(where, sqliteScheme); ok && there && missing(path) {
		return fmt.Errorf("there is no database %s (--rules names another)", path)
	}
	what := "server or control plane"
	if strings.HasPrefix(where, "postgres") {
		what = "database"
	}
	store, err := openBook(cmd.Context(), v, m.now)
	if err != nil {
		return away(fmt.Errorf("rules: %w", err), what, "--rules", where)
	}
	defer func() { err = errors.Join(err, store.close()) }()
	if err = run(store); strings.HasPrefix(where, sqliteScheme) {
		return err
	}
	return away(advised(err), what, "--rules", where)
}

// record is a rule as list and get show it in JSON.
type record struct {
	ID        string          `json:"id"`
	Version   int64           `json:"version"`
	Revision  int64           `json:"revision"`
	ChangedAt time.Time       `json:"changed_at"`
	Deleted   bool            `json:"deleted,omitempty"`
	Live      json.RawMessage `json:"live,omitempty"`
	Candidate *candidate      `json:"candidate,omitempty"`
	Action    string          `json:"action,omitempty"`
	Who       string          `json:"who,omitempty"`
	Why       string          `json:"why,omitempty"`
	// Unreadable is the live body where it is no JSON.
	Unreadable string `json:"unreadable,omitempty"`
}

type candidate struct {
	Body    json.RawMessage `json:"body"`
	Stage   string          `json:"stage"`
	Percent int             `json:"percent,omitempty"`
	Since   time.Time       `json:"since"`
}

func recordOf(r *rulestore.Rule) record {
	out := record{ID: r.ID, Version: r.Version, Revision: r.Revision, ChangedAt: r.ChangedAt, Deleted: r.Deleted, Live: r.Live}
	if r.Live != nil && !json.Valid(r.Live) {
		out.Live, out.Unreadable = nil, string(r.Live)
	}
	if r.Candidate.Body != nil && json.Valid(r.Candidate.Body) {
		out.Candidate = &candidate{Body: r.Candidate.Body, Stage: string(r.Candidate.Stage), Percent: r.Candidate.Percent, Since: r.Candidate.Since}
	}
	return out
}

func versionOf(v *rulestore.Version) record {
	out := recordOf(&v.Rule)
	out.Action, out.Who, out.Why = string(v.Action), v.Who, v.Why
	return out
}

func listRules(cmd *cobra.Command, store *ruleStore, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	set, err := store.Whole(cmd.Context())
	if err != nil {
		return err
	}
	if asData {
		all := make([]record, 0, len(set.Rules))
		for _, r := range set.Rules {
			all = append(all, recordOf(&r))
		}
		return writeData(cmd, all)
	}
	overrides := map[string]int{}
	for _, o := range set.Overrides {
		overrides[o.Rule]++
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RULE\tDOMAIN\tALGORITHM\tMODE\tOVERRIDES\tCANDIDATE\tVERSION\tCHANGED")
	for _, r := range set.Rules {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\n", r.ID, summary(r.Live), overrides[r.ID],
			stageOf(r.Candidate), r.Version, r.ChangedAt.Format(time.RFC3339))
	}
	return w.Flush()
}

// modeOf is the mode of a body.
func modeOf(body json.RawMessage) rules.Mode {
	rule, problems := rules.ParseRule(body)
	if len(problems) > 0 || rule.Mode == "" {
		return rules.ModeEnforce
	}
	return rule.Mode
}

// summary is domain, algorithm and mode of a body, by tabs.
func summary(body json.RawMessage) string {
	rule, problems := rules.ParseRule(body)
	if len(problems) > 0 {
		return "-\tunreadable\t-"
	}
	domain, mode, algorithm := rule.Domain, rule.Mode, rule.Algorithm.String()
	if domain == "" {
		domain = rules.DefaultDomain
	}
	if mode == "" {
		mode = rules.ModeEnforce
	}
	if rule.Action != "" && rule.Action != rules.ActionLimit {
		algorithm = "(" + string(rule.Action) + ")"
	}
	return domain + "\t" + algorithm + "\t" + string(mode)
}

func stageOf(c rulestore.Candidate) string {
	switch c.Stage {
	case rulestore.StageCanary:
		return fmt.Sprintf("canary %d %%", c.Percent)
	case rulestore.StageShadow:
		return string(c.Stage)
	case rulestore.StageNone:
	}
	return "-"
}

func getRule(cmd *cobra.Command, store *ruleStore, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	shown, live, err := ruleAt(cmd, store, args[0])
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, shown)
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, live, "", "  ") != nil {
		pretty.Reset()
		pretty.Write(live) // unreadable, and to be seen as it is
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), pretty.String())
	return err
}

// ruleAt is a rule now, or at the version that is asked for.
func ruleAt(cmd *cobra.Command, store *ruleStore, id string) (record, json.RawMessage, error) {
	if !cmd.Flags().Changed("version") {
		r, err := store.Rule(cmd.Context(), id)
		return recordOf(&r), r.Live, err
	}
	number, _ := cmd.Flags().GetInt64("version")
	v, err := liveAt(cmd, store, id, "version", number)
	if err != nil {
		return record{}, nil, err
	}
	return versionOf(&v), v.Live, nil
}

// liveAt is an older version of a rule, in which it was there. flag is where its
// number comes from.
func liveAt(cmd *cobra.Command, store *ruleStore, id, flag string, number int64) (rulestore.Version, error) {
	if number < 1 {
		return rulestore.Version{}, usagef("--%s %d is no version: they are 1 or more, and rules history lists them", flag, number)
	}
	v, err := store.Version(cmd.Context(), id, number)
	if err == nil && v.Live == nil {
		err = fmt.Errorf("at version %d rule %s was deleted: there is nothing of it", number, id)
	}
	return v, err
}

func ruleHistory(cmd *cobra.Command, store *ruleStore, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	limit, _ := cmd.Flags().GetInt("limit")
	versions, err := store.History(cmd.Context(), args[0], 0, limit)
	if err != nil {
		return err
	}
	if asData {
		all := make([]record, 0, len(versions))
		for _, v := range versions {
			all = append(all, versionOf(&v))
		}
		return writeData(cmd, all)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "VERSION\tACTION\tWHO\tWHEN\tWHY")
	for _, v := range versions {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", v.Version, v.Action, v.Who, v.ChangedAt.Format(time.RFC3339), v.Why)
	}
	return w.Flush()
}

func ruleDiff(cmd *cobra.Command, store *ruleStore, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	from, _ := cmd.Flags().GetInt64("from")
	to, _ := cmd.Flags().GetInt64("to")
	if to == 0 {
		newest, err := store.History(ctx, args[0], 0, 1)
		if err != nil {
			return err
		}
		to = newest[0].Version
	}
	if from == 0 {
		from = to - 1
	}
	if from < 0 || to < 1 {
		return usagef("versions are 1 or more, not --from %d --to %d", from, to)
	}
	after, err := store.Version(ctx, args[0], to)
	if err != nil {
		return err
	}
	var before rulestore.Version // of version 1 nothing is before
	if from > 0 {
		if before, err = store.Version(ctx, args[0], from); err != nil {
			return err
		}
	}
	if asData {
		return writeData(cmd, map[string]record{"from": versionOf(&before), "to": versionOf(&after)})
	}
	out := cmd.OutOrStdout()
	_, _ = fmt.Fprintf(out, "rule %s, version %d to %d\n", args[0], from, to)
	_, _ = fmt.Fprint(out, indent(fieldDiff(before.Live, after.Live)))
	if !bytes.Equal(before.Candidate.Body, after.Candidate.Body) || before.Candidate.Stage != after.Candidate.Stage || before.Candidate.Percent != after.Candidate.Percent {
		_, _ = fmt.Fprintf(out, "candidate: %s → %s\n", stageOf(before.Candidate), stageOf(after.Candidate))
		_, _ = fmt.Fprint(out, indent(fieldDiff(before.Candidate.Body, after.Candidate.Body)))
	}
	return nil
}

func deleteRule(cmd *cobra.Command, store *ruleStore, args []string) error {
	ctx := cmd.Context()
	r, err := store.Rule(ctx, args[0])
	if err != nil {
		return err
	}
	if err := confirm(cmd, fmt.Sprintf("Delete rule %s and its overrides?", r.ID)); err != nil {
		return err
	}
	_, err = store.Apply(ctx, author(cmd), rulestore.Change{Action: rulestore.ActionDelete, Rule: r.ID, IfMatch: r.Version})
	if err == nil {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "rule %s is deleted\n", r.ID)
	}
	return err
}
