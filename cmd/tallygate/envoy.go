package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/envoyconfig"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/metrics"
	"github.com/tallygate/tallygate/rules"
)

// envoyOptions is how the settings read envoyproxy/ratelimit's configuration.
func envoyOptions(v *values) (envoyconfig.ReadOptions, envoyconfig.Options) {
	algorithm, _ := limit.ParseAlgorithm(v.String("envoy-algorithm")) // checked by the setting
	return envoyconfig.ReadOptions{MergeDomains: v.Bool("envoy-merge-domains")}, envoyconfig.Options{
		Algorithm:       algorithm,
		CalendarWindows: v.Bool("envoy-calendar-windows"),
		QuotaShadow:     v.Bool("envoy-quota-shadow"),
		Domain:          v.String("envoy-domain"),
	}
}

func importCommand(env []string) *cobra.Command {
	group := &cobra.Command{Use: "import", Short: "Rules of other systems", Args: noArgs, RunE: help}
	cmd := &cobra.Command{
		Use:   "envoy-ratelimit PATH",
		Short: "Turn a configuration of envoyproxy/ratelimit into rules",
		Long: "Turn a configuration of envoyproxy/ratelimit, a file or a directory of them, into rules: a rules file on\n" +
			"stdout, with what is different as comments. --report shows what became of every line instead.\n" +
			"Warnings go to stderr. A faulty configuration is refused as a whole, with file, line and column.",
		Example: "  tallygate rules import envoy-ratelimit /etc/ratelimit/config > rules.yaml\n" +
			"  tallygate rules import envoy-ratelimit /etc/ratelimit/config --report text",
		Args: oneArg("file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error { return importEnvoy(cmd, env, args[0]) },
	}
	addFlags(cmd, importing)
	cmd.Flags().String("report", "none", "text or json: what became of every line, instead of the rules")
	completeWords(cmd, "report", "none", "text", "json")
	group.AddCommand(cmd)
	return group
}

func importEnvoy(cmd *cobra.Command, env []string, path string) error {
	v, err := load(cmd, env)
	if err != nil {
		return err
	}
	report, _ := cmd.Flags().GetString("report")
	if err := oneOf("none", "text", "json")(report); err != nil {
		return usagef("--report: %w", err)
	}
	read, options := envoyOptions(v)
	tree, err := envoyconfig.Read(path, read)
	if err != nil {
		return err
	}
	imported, err := envoyconfig.Import(tree, options)
	if err != nil {
		return err
	}
	for _, p := range envoyconfig.Lint(tree) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", p)
	}
	var text []byte
	switch report {
	case "text":
		text = []byte(imported.Text())
	case "json":
		text, err = imported.JSON()
	default:
		text, err = imported.RulesYAML()
	}
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// imported says of which domains the rules were made of envoyproxy/ratelimit's
// configuration: those that ask for the path of a descriptor's keys.
type imported struct {
	rules interface{ Snapshot() *rules.Snapshot }
	last  atomic.Pointer[importedDomains]
}

// importedDomains are those of one snapshot.
type importedDomains struct {
	of      *rules.Snapshot
	domains map[string]bool
}

func (i *imported) domain(name string) bool {
	now := i.rules.Snapshot()
	known := i.last.Load()
	if known == nil || known.of != now {
		known = &importedDomains{of: now, domains: map[string]bool{}}
		for _, r := range now.Rules() {
			if _, asks := r.Rule().Match[envoyconfig.AttrPath]; asks {
				known.domains[r.Domain()] = true
			}
		}
		i.last.Store(known)
	}
	return known.domains[name]
}

// newRLS makes Envoy's rate limit service of the settings.
func newRLS(v *values, g *gate, authorize func(string) bool, style headers.Style) (*rls.Server, error) {
	secure, err := listenerTLS(v, "grpc", g.log)
	if err != nil {
		return nil, err
	}
	conf := rls.Config{
		Limiter: g.limiter, Authorize: authorize, TLS: secure,
		Imported:       (&imported{rules: g.rules}).domain,
		PerDescriptor:  v.Bool("rls-per-descriptor"),
		CountDenied:    v.Bool("rls-count-denied"),
		ErrorOnFailure: v.Bool("rls-error-on-failure"),
		Body:           v.Bool("rls-body"),
		Metadata:       v.Bool("rls-metadata"),
		Reflection:     v.Bool("grpc-reflection"),
		MaxInflight:    v.Int("max-inflight"),
		Drain:          v.Duration("drain"),
		Log:            g.log,
	}
	if v.Bool("rls-headers") {
		conf.Headers = &style
	}
	return rls.New(conf)
}

// listenRLS listens on the gRPC port; nil where there is to be none.
func listenRLS(ctx context.Context, v *values, log *slog.Logger) (net.Listener, error) {
	address := v.String("grpc")
	if address == "" {
		return nil, nil //nolint:nilnil // no port is a good answer
	}
	var listener net.Listener
	var err error
	if path, ok := strings.CutPrefix(address, socketScheme); ok {
		listener, err = listenSocket(ctx, path)
	} else {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && v.origin["grpc"] == "default":
		// The second pod on a machine is most often one of a first try.
		log.Warn("no rate limit service for Envoy: the gRPC port is in use; set --grpc", "address", address)
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, fmt.Errorf("grpc: %w; --grpc (TALLYGATE_GRPC) sets another address", err)
	default:
		return listener, nil
	}
}

// rlsCounts reads the figures of Envoy's rate limit service for metrics.
func rlsCounts(srv *rls.Server) func() metrics.RLSCounts {
	return func() metrics.RLSCounts {
		s := srv.Stats()
		return metrics.RLSCounts{UnknownDomain: s.UnknownDomain, FailClosed: s.FailClosed, Failed: s.Failed, Panics: s.Panics}
	}
}
