package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/admin/token"
)

func tokenCommand() *cobra.Command {
	group := &cobra.Command{Use: "token", Short: "Tokens of the admin API", Args: noArgs, RunE: help}
	fresh := &cobra.Command{
		Use:   "new --name NAME --role ROLE",
		Short: "Make a token, and the line of the tokens file that lets it in",
		Long: "Make a token, and the line of the tokens file that lets it in. The token is shown once and kept\n" +
			"nowhere; the file has its hash. Roles: viewer looks, editor changes rules, admin does everything,\n" +
			"pod follows rules and reports, check asks for checks.\n\n" +
			"-o token writes the token alone to stdout, for a file, and the line to stderr.",
		Example: "  tallygate token new --name ci --role editor --domain public-api\n" +
			"  tallygate token new --name fleet --role pod -o token > pod-token 2>> tokens.yaml",
		Args: noArgs,
		RunE: newToken,
	}
	fresh.Flags().String("name", "", "who has it, as the audit shows it")
	fresh.Flags().String("role", "", "viewer, editor, admin, pod or check")
	completeWords(fresh, "role", roles()...)
	fresh.Flags().String("domain", "", "only for rules of this domain (default all)")
	fresh.Flags().StringP("output", "o", outputTable, "table, json, yaml or token")
	completeWords(fresh, "output", outputTable, outputJSON, outputYAML, outputToken)
	group.AddCommand(fresh)
	return group
}

// madeToken is a new token as -o json shows it.
type madeToken struct {
	Token string `json:"token"`
	Line  string `json:"line"`
}

// outputToken is the form of -o that writes the token alone.
const outputToken = "token"

func roles() (names []string) {
	for _, r := range []token.Role{token.Viewer, token.Editor, token.Admin, token.Pod, token.Check} {
		names = append(names, string(r))
	}
	return names
}

func newToken(cmd *cobra.Command, _ []string) error {
	output, _ := cmd.Flags().GetString("output")
	if err := oneOf(outputTable, outputJSON, outputYAML, outputToken)(output); err != nil {
		return usagef("--output: %w", err)
	}
	name, _ := cmd.Flags().GetString("name")
	role, _ := cmd.Flags().GetString("role")
	domain, _ := cmd.Flags().GetString("domain")
	if name == "" || role == "" {
		return usagef("%s needs --name and --role (%s)", cmd.CommandPath(), strings.Join(roles(), ", "))
	}
	if err := oneOf(roles()...)(role); err != nil {
		return usagef("--role %w%s", err, didYouMean(role, roles()))
	}
	shown, hash := token.New()
	line := fmt.Sprintf("  - {name: %q, role: %q, sha256: %s}", name, role, hash)
	if domain != "" {
		line = fmt.Sprintf("  - {name: %q, role: %q, domain: %q, sha256: %s}", name, role, domain, hash)
	}
	if _, err := token.Parse([]byte("tokens:\n" + line + "\n")); err != nil {
		return usagef("a token of --name %q --role %s --domain %q cannot be: %w", name, role, domain, cmp.Or(errors.Unwrap(err), err))
	}
	switch output {
	case outputTable:
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nKeep it: it is shown this once. The line for the tokens file, under \"tokens:\":\n\n%s\n", shown, line)
		return err
	case outputToken:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), shown)
		_, lineErr := fmt.Fprintln(cmd.ErrOrStderr(), line)
		return errors.Join(err, lineErr)
	default:
		return writeData(cmd, madeToken{Token: shown, Line: line})
	}
}
