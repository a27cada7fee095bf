package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore/remote"
	"github.com/tallygate/tallygate/rules"
)

// operateCommands are those that ask a control plane, or the admin port of a server.
func (m *Main) operateCommands(env []string) []*cobra.Command {
	pods := operateCommand(env, "pods", "List the pods, what they work from and how their stores are", listPods)
	usage := operateCommand(env, "usage KEY…", "Show what is left for a key, rule by rule; it spends nothing", showUsage)
	usage.Long = "Show what is left for a key, rule by rule; it spends nothing. Several KEY are the values of one key,\n" +
		"for a rule that counts by several names, in its order. RECENT is what the pods report, in tokens a second."
	usage.Flags().String("domain", rules.DefaultDomain, "domain of the rules")
	explain := operateCommand(env, "explain --attr NAME=VALUE…", "Say which rules match a request and what each would answer; it spends nothing", explainCheck)
	flags := explain.Flags()
	flags.String("domain", "", "domain of the rules (default the server's default one)")
	flags.String("rule", "", "rule to ask, instead of those that match")
	completeRuleFlag(explain, rulesOfControl(env))
	flags.StringArray("key", nil, "key to count, with --rule; again for each part of a rule that counts by several")
	flags.StringArray("attr", nil, "attribute as NAME=VALUE")
	flags.Int64("cost", 1, "tokens that the request would spend")
	keys := &cobra.Command{Use: "keys", Short: "Keys", Args: noArgs, RunE: help}
	reset := operateCommand(env, "reset KEY…", "Make the buckets of a key full again, on every pod", resetKey)
	reset.Flags().String("domain", rules.DefaultDomain, "domain of the rules")
	reset.Flags().String("rule", "", "only the bucket of this rule")
	completeRuleFlag(reset, rulesOfControl(env))
	addAuthor(reset)
	keys.AddCommand(reset)
	return []*cobra.Command{pods, usage, explain, keys}
}

func operateCommand(env []string, use, short string, run func(*cobra.Command, *remote.Client, []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs}
	if strings.Contains(use, "KEY") {
		cmd.Args = keyArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v, err := load(cmd, env)
		if err != nil {
			return err
		}
		c, err := remoteClient(v, v.String("control"))
		if err != nil {
			return err
		}
		defer c.HTTP.CloseIdleConnections()
		return away(advised(run(cmd, c, args)), "server or control plane", "--control", v.String("control"))
	}
	addFlags(cmd, operating)
	addOutput(cmd)
	return cmd
}

// keyArgs wants the values of one key.
func keyArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) > rules.MaxIdentity {
		return usagef("%s takes the 1 to %d values of a key, not %d", cmd.CommandPath(), rules.MaxIdentity, len(args))
	}
	return nil
}

func listPods(cmd *cobra.Command, c *remote.Client, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	list, err := c.Pods(cmd.Context())
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, list)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "the rules are at revision %d\n", list.Revision)
	_, _ = fmt.Fprintln(w, "POD\tREVISION\tSTATE\tUPTIME\tBREAKERS\tFAULTS\tVERSION\tSEEN")
	for _, p := range list.Pods {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\n", p.Pod, p.Revision, stateOf(&p), time.Duration(p.UptimeMS)*time.Millisecond,
			breakersOf(&p), len(p.Faults), cmp.Or(p.Version, "-"), p.SeenAt.Format(time.RFC3339))
	}
	return w.Flush()
}

func stateOf(p *api.Pod) string {
	switch {
	case !p.Live:
		return "silent"
	case p.Behind:
		return "behind"
	default:
		return "current"
	}
}

// breakersOf says how many shards a pod knows, and how many of them it does not ask.
func breakersOf(p *api.Pod) string {
	if len(p.Shards) == 0 {
		return "-"
	}
	open := 0
	for _, s := range p.Shards {
		if s.Breaker != "closed" {
			open++
		}
	}
	if open == 0 {
		return fmt.Sprintf("%d closed", len(p.Shards))
	}
	return fmt.Sprintf("%d of %d open", open, len(p.Shards))
}

func showUsage(cmd *cobra.Command, c *remote.Client, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	domain, _ := cmd.Flags().GetString("domain")
	u, err := c.Usage(cmd.Context(), domain, args)
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, u)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RULE\tLIMIT\tREMAINING\tON LEASE\tRETRY\tRESET\tRECENT\tOVERRIDE")
	for _, r := range u.Rules {
		name := r.Rule
		if r.Candidate {
			name += " (candidate)"
		}
		if r.Error != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, r.Error)
			continue
		}
		recent := "-"
		if r.RecentPerS != nil {
			recent = fmt.Sprintf("%.3g/s", *r.RecentPerS)
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", name, r.Limit, r.Remaining, r.Out, wait(r.RetryMS), wait(r.ResetMS), recent, numbersOf(r.Override))
	}
	return w.Flush()
}

func wait(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func explainCheck(cmd *cobra.Command, c *remote.Client, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	q, err := readQuestion(cmd)
	if err != nil {
		return err
	}
	check := api.Check{Domain: q.Domain, Attributes: q.Attributes, Cost: q.Cost}
	for _, e := range q.Entries {
		check.Entries = append(check.Entries, api.CheckEntry{Rule: e.Rule, Key: api.Key(e.Key), Cost: &e.Cost})
	}
	x, err := c.Explain(cmd.Context(), check)
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, x)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	by := ""
	if x.DeniedBy != "" {
		by = ", by " + x.DeniedBy
	}
	_, _ = fmt.Fprintf(w, "%s%s, at revision %d of domain %s; %s\n", x.Verdict, by, x.Revision, x.Domain, unmatched(x.Unmatched))
	_, _ = fmt.Fprintln(w, "RULE\tSAYS\tACTION\tKEY\tLIMIT\tREMAINING\tRETRY\tOVERRIDE\tNOTE")
	for _, r := range x.Rules {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", r.Rule, r.Verdict, r.Action, orDash(strings.Join(r.Key, ", ")),
			r.Limit, r.Remaining, wait(r.RetryMS), numbersOf(r.Override), noteOf(&r))
	}
	return w.Flush()
}

// unmatched says how many rules have nothing to say about a check.
func unmatched(others int) string {
	switch others {
	case 0:
		return "there is no other rule in it"
	case 1:
		return "1 other rule does not match"
	default:
		return fmt.Sprintf("%d other rules do not match", others)
	}
}

func noteOf(r *api.RuleExplanation) string {
	var notes []string
	for _, n := range []struct {
		holds bool
		text  string
	}{
		{r.SupersededBy != "", "superseded by " + r.SupersededBy},
		{r.Mode == string(rules.ModeShadow), "shadow"},
		{r.Anonymous, "no identity: counted by address"},
		{r.Reason != "", r.Reason},
		{r.Error != "", string(r.Error)},
	} {
		if n.holds {
			notes = append(notes, n.text)
		}
	}
	return orDash(strings.Join(notes, ", "))
}

func resetKey(cmd *cobra.Command, c *remote.Client, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	domain, _ := cmd.Flags().GetString("domain")
	rule, _ := cmd.Flags().GetString("rule")
	done, err := c.ResetKey(cmd.Context(), author(cmd), domain, rule, args)
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, done)
	}
	heard := fmt.Sprintf("pods hear of it by revision %d", done.Revision)
	if done.Revision == 0 {
		heard = "no other pod shares the counts"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s of %s full again; %s\n", count(done.Buckets, "bucket"), strings.Join(args, ", "), heard)
	return err
}
