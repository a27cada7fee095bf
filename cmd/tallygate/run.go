package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitError  = 1
	exitUsage  = 2
	exitDenied = 3
)

// Main is the program. The zero value is ready; the fields are what the process
// around it, or a test, decides.
type Main struct {
	// Signals stop serve (SIGINT, SIGTERM), Reloads has it read its rules again
	// (SIGHUP). Nil means none. See Notify.
	Signals, Reloads <-chan os.Signal
	// Now is the clock of the pod and of the memory store. Nil means time.Now.
	Now func() time.Time
	// Listening is called with the address once serve answers on it.
	Listening func(address string)
	// AdminListening is called with the address of the admin port, before that.
	AdminListening func(address string)
	// GRPCListening is called with the address of Envoy's rate limit service.
	GRPCListening func(address string)
	// ReportEvery is the time between two reports of a pod; 0 means 10 s.
	ReportEvery time.Duration
}

// Run runs the program with args, which leave out the program's name, and
// returns the exit code. It returns when the command is done or ctx ends.
func (m *Main) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	root := m.command(env)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDenied):
		return exitDenied
	case errors.Is(err, errReported):
		return exitError
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(stderr, "tallygate: %v\n", err)
		return exitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "tallygate: %v\n", err)
		return exitError
	}
}

// errDenied ends a check that was denied, errReported a command that has said
// already what is wrong.
var (
	errDenied   = errors.New("denied")
	errReported = errors.New("reported")
)

// usageError is a wrong flag, argument or setting.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// command returns the tree of commands.
func (m *Main) command(env []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "tallygate",
		Short: "A rate limiter that holds one limit per customer over a whole fleet",
		Long: "A rate limiter that holds one limit per customer over a whole fleet.\n\n" +
			"Exit codes: 0 done, for check also allowed; 1 an error; 2 wrong usage; 3 check was denied.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.Version = version().Version
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(wrongFlag)
	root.PersistentFlags().String("config", "", "file of settings (default tallygate.yaml, if it is there)")
	root.AddCommand(
		m.serveCommand(env),
		m.controlCommand(env),
		m.proxyCommand(env),
		checkCommand(env),
		loadCommand(env),
		m.rulesCommand(env),
		m.overridesCommand(env),
		m.auditCommand(env),
		tokenCommand(),
		configCommand(env),
		simulateCommand(),
		storeCommand(env),
		versionCommand(),
	)
	root.AddCommand(m.operateCommands(env)...)
	return root
}

// wrongFlag says what is wrong with a flag, and what a misspelt one may have been.
func wrongFlag(cmd *cobra.Command, err error) error {
	var unknown interface {
		GetSpecifiedName() string
		GetSpecifiedShortnames() string
	}
	switch {
	case !errors.As(err, &unknown):
	case len(unknown.GetSpecifiedShortnames()) > 1: // -http is read as -h -t -t -p
		return usagef("%w; the name of a flag has two dashes in front; see %s --help", err, cmd.CommandPath())
	case cmd.Flags().Lookup(unknown.GetSpecifiedName()) == nil:
		var names []string
		for _, s := range settings() {
			if cmd.Flags().Lookup(s.name) != nil {
				names = append(names, s.name)
			}
		}
		return usagef("%w%s; see %s --help", err, didYouMean(unknown.GetSpecifiedName(), names), cmd.CommandPath())
	}
	return usagef("%s; see %s --help", plainValue(err.Error()), cmd.CommandPath())
}

// plainValue says what a flag takes in place of how Go reads it.
func plainValue(text string) string {
	for how, takes := range map[string]string{
		": strconv.ParseBool: ": "true or false", ": strconv.ParseInt: ": "a whole number", ": strconv.ParseUint: ": "a whole number",
		": strconv.ParseFloat: ": "a number", ": time: ": "a time such as 5s",
	} {
		if what, _, ok := strings.Cut(text, how); ok {
			return what + ": it takes " + takes
		}
	}
	return text
}

// noArgs refuses arguments; for a command with subcommands that is an unknown
// one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	if len(names) > 0 {
		return usagef("unknown command %q for %s%s", args[0], cmd.CommandPath(), didYouMean(args[0], names))
	}
	return usagef("%s takes no argument, got %q", cmd.CommandPath(), args[0])
}
