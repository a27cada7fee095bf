package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	loader "github.com/tallygate/tallygate/internal/load"
)

func loadCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load --rule ID",
		Short: "Send many checks to running servers and measure what comes of them",
		Long: "Send many checks to running servers and measure what comes of them. This spends tokens.\n\n" +
			"With --rps it is an open loop: a check is due every 1/rps seconds, and its latency counts from when it\n" +
			"was due, so that a server that stalls is charged for all who would have come meanwhile. Without --rps it is\n" +
			"a closed loop: as many as --workers at a time, as fast as they are answered.\n\n" +
			"With --rate and --burst, the rule's numbers, it compares what was admitted with burst + rate × time. The\n" +
			"exit code is 1 if a key was admitted more, or if no check was answered.",
		Example: "  tallygate load --server http://127.0.0.1:8081 --server http://127.0.0.1:8082 --domain public-api \\\n" +
			"    --rule growth-global --key acct_load --rps 500 --duration 10s --rate 100 --burst 200",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLoad(cmd, env) },
	}
	addOutput(cmd)
	flags := cmd.Flags()
	flags.StringArray("server", nil, "base URL of a server to ask; again for each, asked in turn (default the setting server, http://127.0.0.1:8080)")
	flags.String("domain", "", "domain of the rule (default the server's default one)")
	flags.String("rule", "", "rule to ask")
	completeRuleFlag(cmd, rulesOfSettings(env))
	flags.String("key", "load", "key to count; with --keys above 1 a number follows it")
	flags.Int("keys", 1, "how many keys, in turn")
	flags.Int64("cost", 1, "tokens each check spends")
	flags.Float64("rps", 0, "checks due a second, over all servers; 0 is a closed loop")
	flags.Int("workers", 64, "most checks under way at one time")
	flags.Duration("duration", 10*time.Second, "how long, up to an hour")
	flags.Duration("timeout", 5*time.Second, "how long to wait for one answer")
	flags.Int64("rate", 0, "the rule's tokens a second, to compare with")
	flags.Int64("burst", 0, "what a full bucket of the rule holds, to compare with")
	return cmd
}

func runLoad(cmd *cobra.Command, env []string) error {
	v, err := load(cmd, env)
	if err != nil {
		return err
	}
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	var plan loader.Plan
	var target loader.Target
	var limit loader.Limit
	flags := cmd.Flags()
	plan.Rate, _ = flags.GetFloat64("rps")
	plan.Workers, _ = flags.GetInt("workers")
	plan.Duration, _ = flags.GetDuration("duration")
	if target.Servers, _ = flags.GetStringArray("server"); len(target.Servers) == 0 {
		target.Servers = []string{v.String("server")}
	}
	target.Domain, _ = flags.GetString("domain")
	target.Rule, _ = flags.GetString("rule")
	target.Key, _ = flags.GetString("key")
	target.Keys, _ = flags.GetInt("keys")
	target.Cost, _ = flags.GetInt64("cost")
	target.Timeout, _ = flags.GetDuration("timeout")
	limit.Rate, _ = flags.GetInt64("rate")
	limit.Burst, _ = flags.GetInt64("burst")
	if target.Rule == "" {
		return usagef("load needs --rule")
	}
	if limit.Rate < 0 || limit.Burst < 0 || (limit.Rate > 0) != (limit.Burst > 0) {
		return usagef("--rate and --burst go together, and are the rule's")
	}
	for _, server := range target.Servers {
		if err := httpURL(server); err != nil {
			return usagef("--server: %w", err)
		}
	}
	report, err := loader.Drive(cmd.Context(), plan, target, limit)
	switch {
	case errors.Is(err, loader.ErrPlan):
		return usagef("%w", err)
	case err != nil:
		return err
	case asData:
		err = writeData(cmd, report)
	default:
		err = report.Print(cmd.OutOrStdout())
	}
	return errors.Join(err, broken(report))
}

// broken says what makes a load a failure.
func broken(r *loader.Report) error {
	switch {
	case r.Checks == r.Errors:
		return fmt.Errorf("no check was answered: %s", r.FirstError)
	case r.Envelope != nil && r.Envelope.Over > 0:
		return fmt.Errorf("a key was admitted %.0f tokens above its limit", r.Envelope.Over)
	default:
		return nil
	}
}
