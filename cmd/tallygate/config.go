package main

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func configCommand(env []string) *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "Settings", Args: noArgs, RunE: help}
	show := &cobra.Command{
		Use:   "print",
		Short: "Show the settings in force and where each comes from, secrets masked",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := load(cmd, env)
			if err != nil {
				return err
			}
			return v.print(cmd)
		},
	}
	addFlags(show, serving)
	addOutput(show)
	config.AddCommand(show)
	return config
}

// shown is one setting as config print shows it.
type shown struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Source  string `json:"source"`
}

// print writes all settings.
func (v *values) print(cmd *cobra.Command) error {
	var all []shown
	for _, s := range settings() {
		all = append(all, shown{Setting: s.name, Value: v.masked(&s), Source: v.origin[s.name]})
	}
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	if asData {
		return writeData(cmd, all)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "SETTING\tVALUE\tSOURCE")
	for _, s := range all {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", s.Setting, s.Value, s.Source)
	}
	return w.Flush()
}

// masked returns a value fit to be seen.
func (v *values) masked(s *setting) string {
	value := v.String(s.name)
	switch {
	case s.secret && value != "":
		return "***"
	default:
		return maskURL(value)
	}
}

// maskURL hides the passwords in a URL: before the host, and in parameters such
// as PostgreSQL's.
func maskURL(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		return value
	}
	rest = regexp.MustCompile(`(?i)([?&][^=&]*password)=[^&]*`).ReplaceAllString(rest, "$1=***")
	value = scheme + "://" + rest
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return value
	}
	user, _, hasPassword := strings.Cut(rest[:at], ":")
	if !hasPassword {
		return value
	}
	if name, err := url.PathUnescape(user); err == nil {
		user = name
	}
	return scheme + "://" + user + ":***" + rest[at:]
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }
