package main

import (
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// stageCommands are the subcommands of rules that move one rule, or its candidate.
func (m *Main) stageCommands(env []string) []*cobra.Command {
	shadow := m.stageCommand(env, "shadow ID", "Set a rule's mode to shadow: evaluated and counted, never enforced", rulestore.ActionShadow)
	shadow.Flags().Bool("yes", false, "do not ask")
	enforce := m.stageCommand(env, "enforce ID", "Set a rule's mode to enforce", rulestore.ActionEnforce)
	canary := m.stageCommand(env, "canary ID PERCENT", "Have a part of the pods enforce a rule's candidate; 0 goes back to shadow", rulestore.ActionCanary)
	promote := m.stageCommand(env, "promote ID", "Make a rule's candidate the live rule", rulestore.ActionPromote)
	promote.Flags().Bool("force", false, "also where the candidate has not proven itself")
	rollback := m.stageCommand(env, "rollback ID", "Drop a rule's candidate or, where it has none, bring back a version", rulestore.ActionRollback)
	rollback.Long = "Drop a rule's candidate or, where it has none, bring back the live rule of the version before, or of --to."
	rollback.Flags().Int64("to", 0, "version whose live rule is to come back (default that before)")
	trial := m.recordCommand(env, "trial ID", "Show how a rule's candidate does, by what the pods counted", showTrial)
	return []*cobra.Command{shadow, enforce, canary, promote, rollback, trial}
}

func (m *Main) stageCommand(env []string, use, short string, action rulestore.Action) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, ValidArgsFunction: m.completeRules(env, false)}
	cmd.Args = oneArg("rule's id")
	if action == rulestore.ActionCanary {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("%s takes a rule's id and a percentage, 0 to 100", cmd.CommandPath())
			}
			return nil
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change := rulestore.Change{Action: action, Rule: args[0]}
		if action == rulestore.ActionCanary {
			percent, err := strconv.ParseUint(args[1], 10, 8)
			if err != nil || percent > 100 {
				return usagef("%q is no whole percentage from 0 to 100", args[1])
			}
			change.Percent = int(percent)
		}
		return m.onStore(cmd, env, true, func(s *ruleStore) error { return move(cmd, s, change) })
	}
	addFlags(cmd, governing)
	addAuthor(cmd)
	return cmd
}

// move makes one change of a rule, at the version that is there now.
func move(cmd *cobra.Command, store *ruleStore, change rulestore.Change) error {
	ctx := cmd.Context()
	r, err := store.Rule(ctx, change.Rule)
	if err != nil {
		return err
	}
	change.IfMatch = r.Version
	if cmd.Flags().Changed("to") {
		return bringBack(cmd, store, &r)
	}
	if change.Action == rulestore.ActionCanary && stands(r.Candidate, change.Percent) {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the candidate of rule %s is at %s already, at version %d: nothing was changed\n", r.ID, stageOf(r.Candidate), r.Version)
		return err
	}
	if change.Action == rulestore.ActionShadow && modeOf(r.Live) == rules.ModeEnforce {
		if err := confirm(cmd, stopEnforcing(&r)); err != nil {
			return err
		}
	}
	now, err := moved(cmd, store, &r, change)
	if err != nil {
		return raced(err)
	}
	return printMoved(cmd, &now)
}

func printMoved(cmd *cobra.Command, now *rulestore.Rule) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "rule %s is at version %d: mode %s, candidate %s\n", now.ID, now.Version, modeOf(now.Live), stageOf(now.Candidate))
	return err
}

// bringBack puts the live rule of an older version into force again. It is a change as
// any other: of another one meanwhile it is told.
func bringBack(cmd *cobra.Command, store *ruleStore, now *rulestore.Rule) error {
	to, _ := cmd.Flags().GetInt64("to")
	if now.Candidate.Body != nil {
		return fmt.Errorf("rule %s has a candidate (%s): drop it first, by rules rollback %s without --to", now.ID, stageOf(now.Candidate), now.ID)
	}
	old, err := liveAt(cmd, store, now.ID, "to", to)
	if err != nil {
		return err
	}
	diff := fieldDiff(now.Live, old.Live)
	if diff == "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "rule %s is as it was at version %d, at version %d: nothing was changed\n", now.ID, to, now.Version)
		return err
	}
	by := author(cmd)
	if by.Why == "" {
		by.Why = fmt.Sprintf("back to version %d", to)
	}
	applied, err := store.Apply(cmd.Context(), by, rulestore.Change{Action: rulestore.ActionPut, Rule: now.ID, IfMatch: now.Version, Body: old.Live})
	if err != nil {
		return raced(err)
	}
	printWarnings(cmd, &applied)
	_, _ = fmt.Fprint(cmd.OutOrStdout(), indent(diff))
	return printMoved(cmd, &applied.Results[0].Rule)
}

// stands reports whether a candidate is at a percentage; 0 is stage shadow.
func stands(c rulestore.Candidate, percent int) bool {
	return c.Stage == rulestore.StageShadow && percent == 0 || c.Stage == rulestore.StageCanary && percent > 0 && c.Percent == percent
}

// stopEnforcing asks what somebody may not have meant who has a candidate in mind.
func stopEnforcing(r *rulestore.Rule) string {
	question := "Stop enforcing rule " + r.ID + "?"
	if r.Candidate.Body != nil {
		question += " Its candidate is moved by canary " + r.ID + " 0"
	}
	return question
}

// moved makes the change and returns the rule after it. Whether a candidate may be
// promoted is for the control plane to say.
func moved(cmd *cobra.Command, store *ruleStore, before *rulestore.Rule, change rulestore.Change) (rulestore.Rule, error) {
	ctx := cmd.Context()
	if change.Action == rulestore.ActionPromote && before.Candidate.Body != nil {
		switch force, _ := cmd.Flags().GetBool("force"); {
		case store.control != nil:
			return store.control.Promote(ctx, author(cmd), change.Rule, change.IfMatch, force)
		case !force:
			return rulestore.Rule{}, errNotProven
		}
	}
	applied, err := store.Apply(ctx, author(cmd), change)
	if err != nil {
		return rulestore.Rule{}, err
	}
	printWarnings(cmd, &applied)
	return applied.Results[0].Rule, nil
}

// raced says what to do about a change that another one overtook.
func raced(err error) error {
	if rulestore.CodeOf(err) == rulestore.Conflict {
		return fmt.Errorf("somebody else has changed it meanwhile, and nothing was done; run it again: %w", err)
	}
	return err
}

// errNotProven is why a database alone lets no candidate be promoted.
var errNotProven = errors.New("whether the candidate has proven itself is known to the control plane, not to the database: " +
	"ask it (--rules http://…, see tallygate control), or use --force")

// printWarnings says what is doubtful about what was done.
func printWarnings(cmd *cobra.Command, applied *rulestore.Applied) {
	for _, r := range applied.Results {
		for _, w := range r.Warnings {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
		}
	}
}

// showTrial shows how a candidate does.
func showTrial(cmd *cobra.Command, store *ruleStore, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	if store.control == nil {
		return errNoFigures
	}
	t, err := store.control.Trial(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, t)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "candidate of %s, %s since %s: %s (%s)\n", t.Rule,
		stageOf(rulestore.Candidate{Stage: t.Stage, Percent: t.Percent}), t.Since.Format(time.RFC3339), t.Verdict.State, t.Verdict.Why)
	_, _ = fmt.Fprintln(w, "HIT HARDEST\tCHECKS\tLIVE DENIED\tCANDIDATE DENIED")
	_, _ = fmt.Fprintf(w, "(all, last minute)\t%d\t%d\t%d\n", t.Verdict.Checks, t.Verdict.LiveDenied, t.Verdict.CandidateDenied)
	for _, k := range t.Hardest {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", k.Key, k.Checks, k.LiveDenied, k.CandidateDenied)
	}
	return w.Flush()
}

// errNoFigures is why a database alone shows no trial.
var errNoFigures = errors.New("what pods counted is known to the control plane, not to the database: ask it with --rules http://…, the admin port of a server or of tallygate control")
