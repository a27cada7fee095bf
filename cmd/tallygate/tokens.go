package main

import (
	"fmt"

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
			"pod follows rules and reports, check asks for checks.",
		Example: "  tallygate token new --name ci --role editor --domain public-api",
		Args:    noArgs,
		RunE:    newToken,
	}
	fresh.Flags().String("name", "", "who has it, as the audit shows it")
	fresh.Flags().String("role", "", "viewer, editor, admin, pod or check")
	fresh.Flags().String("domain", "", "only for rules of this domain (default all)")
	addOutput(fresh)
	group.AddCommand(fresh)
	return group
}

// madeToken is a new token as -o json shows it.
type madeToken struct {
	Token string `json:"token"`
	Line  string `json:"line"`
}

func newToken(cmd *cobra.Command, _ []string) error {
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	name, _ := cmd.Flags().GetString("name")
	role, _ := cmd.Flags().GetString("role")
	domain, _ := cmd.Flags().GetString("domain")
	shown, hash := token.New()
	line := fmt.Sprintf("  - {name: %q, role: %q, sha256: %s}", name, role, hash)
	if domain != "" {
		line = fmt.Sprintf("  - {name: %q, role: %q, domain: %q, sha256: %s}", name, role, domain, hash)
	}
	if _, err := token.Parse([]byte("tokens:\n" + line + "\n")); err != nil {
		return usagef("%w", err)
	}
	if asData {
		return writeData(cmd, madeToken{Token: shown, Line: line})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nKeep it: it is shown this once. The line for the tokens file, under \"tokens:\":\n\n%s\n", shown, line)
	return err
}
