package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// auditCommand lists what was changed.
func (m *Main) auditCommand(env []string) *cobra.Command {
	cmd := m.recordCommand(env, "audit", "List what was changed, by whom and why, newest first", listAudit)
	flags := cmd.Flags()
	flags.String("rule", "", "only changes of this rule and its overrides")
	flags.StringArray("key", nil, "only changes of this key; again for each of its values")
	flags.String("by", "", "only changes by this person or token")
	flags.String("action", "", "only this action, such as put, canary, override")
	addDays(cmd, "since", "only the last so long, such as 24h or 7d")
	completeRuleFlag(cmd, rulesOfSettings(env))
	var actions []string
	for _, action := range rulestore.Actions() {
		actions = append(actions, string(action))
	}
	completeWords(cmd, "action", actions...)
	flags.Int("limit", rulestore.DefaultPage, "most lines, 1 to 1000")
	return cmd
}

// auditLine is one change as audit shows it.
type auditLine struct {
	ID       int64           `json:"id"`
	Revision int64           `json:"revision"`
	At       time.Time       `json:"at"`
	Who      string          `json:"who"`
	Why      string          `json:"why,omitempty"`
	Action   string          `json:"action"`
	Rule     string          `json:"rule,omitempty"`
	Key      key             `json:"key,omitempty"`
	Version  int64           `json:"version,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"`
	After    json.RawMessage `json:"after,omitempty"`
}

func listAudit(cmd *cobra.Command, store *ruleStore, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	filter, err := readFilter(cmd)
	if err != nil {
		return err
	}
	entries, err := store.Audit(cmd.Context(), filter)
	if err != nil {
		return err
	}
	if asData {
		lines := make([]auditLine, 0, len(entries))
		for _, e := range entries {
			lines = append(lines, auditLine{
				ID: e.ID, Revision: e.Revision, At: e.At, Who: e.Who, Why: e.Why, Action: string(e.Action),
				Rule: e.Rule, Key: e.Key, Version: e.Version, Before: e.Before, After: e.After,
			})
		}
		return writeData(cmd, lines)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "WHEN\tWHO\tACTION\tRULE\tKEY\tVERSION\tWHY")
	for _, e := range entries {
		version := "-" // a reset makes none
		if e.Version > 0 {
			version = strconv.FormatInt(e.Version, 10)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.At.Format(time.RFC3339), e.Who, e.Action, orDash(e.Rule), orDash(strings.Join(e.Key, ", ")), version, orDash(e.Why))
	}
	return w.Flush()
}

func readFilter(cmd *cobra.Command) (f rulestore.AuditFilter, err error) {
	flags := cmd.Flags()
	f.Rule, _ = flags.GetString("rule")
	if keys, _ := flags.GetStringArray("key"); len(keys) > 0 {
		f.Key = keys
	}
	f.Who, _ = flags.GetString("by")
	f.Limit, _ = flags.GetInt("limit")
	action, _ := flags.GetString("action")
	if f.Action = rulestore.Action(action); action != "" && !slices.Contains(rulestore.Actions(), f.Action) {
		return f, usagef("--action %q is none of %v", action, rulestore.Actions())
	}
	since, _ := flags.GetDuration("since")
	if since < 0 {
		return f, usagef("--since %s is below 0", since)
	}
	if since > 0 {
		f.From = time.Now().Add(-since)
	}
	return f, nil
}
