package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// completeRules completes the ids of rules as arguments, one or many, as far as they
// can be read at once. A shell that waits has no use for an error.
func (m *Main) completeRules(env []string, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []string
		_ = m.onStore(cmd, env, true, func(s *ruleStore) error {
			set, err := s.Whole(cmd.Context())
			ids = idsOf(&set, args)
			return err
		})
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

func idsOf(set *rulestore.Set, but []string) (ids []string) {
	for _, r := range set.Rules {
		if !slices.Contains(but, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// completeRuleFlag completes the flag --rule, which is there, by ids of rules.
func completeRuleFlag(cmd *cobra.Command, ids func(cmd *cobra.Command) []string) {
	_ = cmd.RegisterFlagCompletionFunc("rule", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return ids(cmd), cobra.ShellCompDirectiveNoFileComp
	})
}

// rulesOfSettings are the ids of the rules that the settings name, in a database, a
// file or behind a control plane.
func rulesOfSettings(env []string) func(cmd *cobra.Command) []string {
	return func(cmd *cobra.Command) (ids []string) {
		v, err := load(cmd, env)
		if err != nil {
			return nil
		}
		var set rules.Set
		if set, _, err = readRules(cmd.Context(), v); err != nil {
			return nil
		}
		for _, r := range set.Rules {
			ids = append(ids, r.ID)
		}
		return ids
	}
}

// rulesOfControl are those that the control plane has.
func rulesOfControl(env []string) func(cmd *cobra.Command) []string {
	return func(cmd *cobra.Command) []string {
		v, err := load(cmd, env)
		if err != nil {
			return nil
		}
		c, err := remoteClient(v, v.String("control"))
		if err != nil {
			return nil
		}
		defer c.HTTP.CloseIdleConnections()
		set, err := c.Whole(cmd.Context())
		if err != nil {
			return nil
		}
		return idsOf(&set, nil)
	}
}
