package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/internal/sim/scenario"
	"github.com/tallygate/tallygate/internal/sim/scenarios"
)

func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate SCENARIO…",
		Short: "Run a fleet of pods on virtual time",
		Long: "Run a fleet of pods on virtual time: the code that decides here is the one that serves.\n" +
			"A scenario is a YAML file, or the name of one that comes with tallygate:\n" +
			"  " + strings.Join(scenarios.Names(), ", ") + ".\n" +
			"The same seed gives the same trace. Real seconds are told for the machine at hand.\n" +
			"The exit code is 1 if anything was admitted above the envelope, or while a store was\n" +
			"away above what fallbacks may.",
		Example: "  tallygate simulate hot-key --duration 10s\n  tallygate simulate my.yaml --seed 7 -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s takes scenarios: files, or of %s", cmd.CommandPath(), strings.Join(scenarios.Names(), ", "))
			}
			return nil
		},
		RunE: simulate,
		// Files too: a scenario may be one.
		ValidArgsFunction: cobra.FixedCompletions(scenarios.Names(), cobra.ShellCompDirectiveDefault),
	}
	addOutput(cmd)
	flags := cmd.Flags()
	flags.Uint64("seed", 1, "number that chooses the traffic and the network's moods")
	flags.Duration("duration", 0, "how long traffic comes, on the virtual clock (default the scenario's)")
	return cmd
}

func simulate(cmd *cobra.Command, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	seed, _ := cmd.Flags().GetUint64("seed")
	duration, _ := cmd.Flags().GetDuration("duration")
	results := make([]*sim.Result, 0, len(args))
	var above int64
	for _, name := range args {
		c, err := readScenario(name)
		if err != nil {
			return err
		}
		c.Seed = seed
		if cmd.Flags().Changed("duration") {
			c.Duration = duration
		}
		start := time.Now()
		r, err := sim.Run(c)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Took(time.Since(start))
		results = append(results, r)
		above += r.Above()
	}
	if asData {
		err = writeData(cmd, results)
	} else {
		err = sim.WriteTable(cmd.OutOrStdout(), results)
	}
	if err == nil && above > 0 {
		err = fmt.Errorf("%d tokens were admitted above what may be", above)
	}
	return err
}

// readScenario reads a file, or one that we ship: what looks like a path is one.
func readScenario(name string) (sim.Config, error) {
	if data, ok := scenarios.Read(name); ok {
		return scenario.Parse(name, data)
	}
	if !strings.ContainsAny(name, `./\`) {
		return sim.Config{}, usagef("no scenario %q%s; files have an ending, those we ship are %s",
			name, didYouMean(name, scenarios.Names()), strings.Join(scenarios.Names(), ", "))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return sim.Config{}, err
	}
	return scenario.Parse(name, data)
}
