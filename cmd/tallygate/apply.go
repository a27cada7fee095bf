package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

func (m *Main) applyCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Bring the database to what a rules file says",
		Long: "Bring the database to what a rules file says: shows what would change, asks, and changes all of it in one\n" +
			"step, or nothing. What the file does not have stays, unless --prune is given. A faulty file changes nothing.\n\n" +
			"The exit code is 0 if it is done or there is nothing to do, 1 if not, 2 for wrong usage.",
		Example: "  tallygate rules apply rules.yaml --dry-run\n  tallygate rules apply rules.yaml --yes --why 'launch week'",
		Args:    oneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.onStore(cmd, env, false, func(s *ruleStore) error { return m.apply(cmd, s, args[0]) })
		},
	}
	addFlags(cmd, governing)
	addAuthor(cmd)
	flags := cmd.Flags()
	flags.Bool("yes", false, "do not ask")
	flags.Bool("dry-run", false, "only show what would change, and whether the database would take it")
	flags.Bool("prune", false, "also delete what the file does not have")
	flags.String("stage", "full", "full puts changed rules into force, shadow stands them beside the live ones as candidates")
	completeWords(cmd, "stage", "full", "shadow")
	return cmd
}

func (m *Main) apply(cmd *cobra.Command, store *ruleStore, path string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	set, problems, _, err := yaml.File(path).Load(ctx)
	if err != nil && len(problems) == 0 {
		return err
	}
	if problems = append(problems, rules.Lint(set, m.now())...); len(problems.Faults()) > 0 {
		return errors.Join(errReported, printFindings(cmd, path, problems, len(set.Rules), len(set.Overrides)))
	}
	now, err := store.Whole(ctx)
	if err != nil {
		return err
	}
	prune, _ := cmd.Flags().GetBool("prune")
	plan, err := now.Toward(set, prune)
	if err != nil {
		return err
	}
	if err := stagePlan(cmd, &plan, &now); err != nil {
		return err
	}
	candidates := candidatesOf(&now)
	printPlan(out, &plan, candidates)
	if len(plan.Steps) == 0 {
		return stillStanding(out, set.Rules, candidates)
	}
	by := author(cmd)
	if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
		would, err := store.DryRun(ctx, by, plan.Changes()...)
		printWarnings(cmd, &would)
		return err
	}
	if err := confirm(cmd, "Change this?"); err != nil {
		return err
	}
	applied, err := store.Apply(ctx, by, plan.Changes()...)
	if err != nil {
		return raced(err)
	}
	printWarnings(cmd, &applied)
	_, err = fmt.Fprintf(out, "done, at revision %d\n", applied.Revision)
	return err
}

// stagePlan makes candidates of the changes, where that is asked for.
func stagePlan(cmd *cobra.Command, plan *rulestore.Plan, now *rulestore.Set) error {
	stage, _ := cmd.Flags().GetString("stage")
	if err := oneOf("full", "shadow")(stage); err != nil {
		return usagef("--stage: %w", err)
	}
	if stage == "full" {
		return nil
	}
	candidates := candidatesOf(now)
	var steps []rulestore.Step
	for _, s := range plan.Steps {
		switch {
		case s.Key != nil || s.Action != rulestore.ActionPut:
			return fmt.Errorf("only rules have candidates: %s %s cannot be tried out; leave it out of the file, or apply it with --stage full", s.Action, s.Rule)
		case s.IfMatch == 0:
			return fmt.Errorf("rule %s is new, so there is nothing its candidate could stand beside; apply it with --stage full, in mode shadow if it is not to be enforced yet", s.Rule)
		case bytes.Equal(candidates[s.Rule].Body, s.Body):
			continue // it stands there already
		}
		s.Action = rulestore.ActionPropose
		steps = append(steps, s)
	}
	plan.Steps = steps
	return nil
}

// candidatesOf are the candidates that stand, by rule.
func candidatesOf(now *rulestore.Set) map[string]rulestore.Candidate {
	out := map[string]rulestore.Candidate{}
	for _, r := range now.Rules {
		if r.Candidate.Body != nil {
			out[r.ID] = r.Candidate
		}
	}
	return out
}

// besideStep says what a step does to the candidate of its rule; "" for nothing.
func besideStep(s *rulestore.Step, candidates map[string]rulestore.Candidate) string {
	c, stands := candidates[s.Rule]
	switch {
	case !stands || s.Key != nil:
		return ""
	case s.Action == rulestore.ActionPropose:
		return fmt.Sprintf("takes the place of a candidate (%s); its trial begins in shadow", stageOf(c))
	case s.Action == rulestore.ActionDelete:
		return fmt.Sprintf("its candidate (%s) goes with it", stageOf(c))
	default:
		return fmt.Sprintf("its candidate (%s) stays, and its trial begins anew", stageOf(c))
	}
}

// stillStanding names the candidates of a file's rules where nothing else is to be done.
func stillStanding(out io.Writer, list []rules.Rule, candidates map[string]rulestore.Candidate) error {
	for _, r := range list {
		if c, stands := candidates[r.ID]; stands {
			if _, err := fmt.Fprintf(out, "rule %s has a candidate (%s), which stays as it is: promote makes it live, rollback drops it\n", r.ID, stageOf(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// printPlan shows each step, then how many there are.
func printPlan(out io.Writer, p *rulestore.Plan, candidates map[string]rulestore.Candidate) {
	var add, change, remove int
	for _, s := range p.Steps {
		sign := "~"
		switch {
		case s.Before == nil:
			add++
			sign = "+"
		case s.After == nil:
			remove++
			sign = "-"
		default:
			change++
		}
		name := "rule " + s.Rule
		if s.Key != nil {
			name = fmt.Sprintf("override of %s for %s", s.Rule, strings.Join(s.Key, ", "))
		}
		if s.Action == rulestore.ActionPropose {
			name = "candidate of " + name
		}
		_, _ = fmt.Fprintf(out, "%s %s\n", sign, name)
		if s.After != nil {
			_, _ = fmt.Fprint(out, indent(fieldDiff(s.Before, s.After)))
		}
		if text := besideStep(&s, candidates); text != "" {
			_, _ = fmt.Fprintf(out, "    %s\n", text)
		}
	}
	_, _ = fmt.Fprintf(out, "%d to add, %d to change, %d to delete\n", add, change, remove)
	if p.ExtraRules+p.ExtraOverrides > 0 {
		_, _ = fmt.Fprintf(out, "%s and %s are not in the file and stay; --prune deletes them\n", count(p.ExtraRules, "rule"), count(p.ExtraOverrides, "override"))
	}
}

// fieldDiff says line by line which fields of a body differ.
func fieldDiff(before, after json.RawMessage) string {
	was, is := fieldsOf(before), fieldsOf(after)
	var names []string
	for name := range was {
		names = append(names, name)
	}
	for name := range is {
		if _, both := was[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		old, had := was[name]
		text, has := is[name]
		switch {
		case !had:
			fmt.Fprintf(&b, "+ %s: %s\n", name, text)
		case !has:
			fmt.Fprintf(&b, "- %s: %s\n", name, old)
		case !bytes.Equal(old, text):
			fmt.Fprintf(&b, "~ %s: %s → %s\n", name, old, text)
		}
	}
	return b.String()
}

// fieldsOf takes a body apart; one that is no object is one field.
func fieldsOf(body json.RawMessage) map[string]json.RawMessage {
	if body == nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return map[string]json.RawMessage{"(unreadable)": body}
	}
	return fields
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// confirm asks, unless --yes is given. Anything but yes is no.
func confirm(cmd *cobra.Command, question string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s [y/N] ", question)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	default:
		return errors.New("nothing was changed; y or --yes would have done it")
	}
}

// addAuthor adds the flags that say who makes a change, and why.
func addAuthor(cmd *cobra.Command) {
	cmd.Flags().String("who", "", "who makes the change, for the audit (default your user name and host)")
	cmd.Flags().String("why", "", "why, for the audit")
}

func author(cmd *cobra.Command) rulestore.Author {
	who, _ := cmd.Flags().GetString("who")
	why, _ := cmd.Flags().GetString("why")
	if who == "" {
		who = "unknown"
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
		if host, err := os.Hostname(); err == nil {
			who += "@" + host
		}
	}
	return rulestore.Author{Who: who, Why: why}
}

// oneArg wants exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s takes one %s", cmd.CommandPath(), what)
		}
		return nil
	}
}
