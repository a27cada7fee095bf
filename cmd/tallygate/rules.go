package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

func (m *Main) rulesCommand(env []string) *cobra.Command {
	group := &cobra.Command{Use: "rules", Short: "Rules", Args: noArgs, RunE: help}
	lint := &cobra.Command{
		Use:   "lint FILE",
		Short: "Check a rules file, without a server",
		Long: "Check a rules file, without a server. Each problem is a line\n\n" +
			"  FILE:LINE:COLUMN: error|warning: rule ID: FIELD: what is wrong; what to do\n\n" +
			"The exit code is 1 if there is an error; warnings leave it 0.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%s takes one file", cmd.CommandPath())
			}
			return nil
		},
		RunE: m.lint,
	}
	addOutput(lint)
	group.AddCommand(lint)
	group.AddCommand(m.recordCommands(env)...)
	group.AddCommand(importCommand(env))
	return group
}

// finding is one problem as lint -o json shows it.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"`
	Rule     string `json:"rule,omitempty"`
	Field    string `json:"field,omitempty"`
	Value    string `json:"value,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

func (m *Main) lint(cmd *cobra.Command, args []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	path := args[0]
	set, problems, _, err := yaml.File(path).Load(cmd.Context())
	if err != nil && len(problems) == 0 {
		return err
	}
	problems = append(problems, rules.Lint(set, m.now())...)
	if asData {
		err = writeData(cmd, findings(path, problems))
	} else {
		err = printFindings(cmd, path, problems, len(set.Rules), len(set.Overrides))
	}
	if len(problems.Faults()) > 0 {
		return errors.Join(errReported, err)
	}
	return err
}

func findings(path string, problems rules.Problems) []finding {
	all := make([]finding, 0, len(problems))
	for _, p := range problems {
		f := finding{
			File: path, Line: p.Line, Column: p.Column, Severity: "error",
			Rule: p.Rule, Field: p.Field, Value: p.Value, Message: p.Message, Fix: p.Fix,
		}
		if p.Warning {
			f.Severity = "warning"
		}
		all = append(all, f)
	}
	return all
}

func printFindings(cmd *cobra.Command, path string, problems rules.Problems, ruleCount, overrideCount int) error {
	var b strings.Builder
	for _, f := range findings(path, problems) {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		fmt.Fprintf(&b, ": %s: ", f.Severity)
		if f.Rule != "" {
			fmt.Fprintf(&b, "rule %s: ", f.Rule)
		}
		if f.Field != "" {
			fmt.Fprintf(&b, "%s: ", f.Field)
		}
		b.WriteString(f.Message)
		if f.Fix != "" {
			fmt.Fprintf(&b, "; %s", f.Fix)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s: %s, %s: %s, %s\n", path,
		count(ruleCount, "rule"), count(overrideCount, "override"),
		count(len(problems.Faults()), "error"), count(len(problems.Warnings()), "warning"))
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
}

// count says how many of something there are.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
