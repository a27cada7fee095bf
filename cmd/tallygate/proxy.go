package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/proxy"
	"github.com/tallygate/tallygate/internal/tlsfiles"
	"github.com/tallygate/tallygate/metrics"
)

func (m *Main) proxyCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy --upstream URL",
		Short: "Stand in front of an upstream and limit what it gets",
		Long: "Stand in front of an upstream as a reverse proxy, and limit what it gets: HTTP/1.1, HTTP/2, WebSockets,\n" +
			"event streams and gRPC. Rules, store, admin API and metrics are those of tallygate serve.\n\n" +
			"Requests are told apart by address, and by what --identity names; routes are told by --routes-file.",
		Example: "  tallygate proxy --upstream http://127.0.0.1:3000 --identity api_key=header:X-Api-Key",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := load(cmd, env)
			if err != nil {
				return err
			}
			return m.proxy(cmd.Context(), v, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addFlags(cmd, proxying)
	return cmd
}

// proxy wires everything, serves, and takes it apart in the opposite order.
func (m *Main) proxy(ctx context.Context, v *values, stdout, stderr io.Writer) (err error) {
	if v.String("upstream") == "" {
		return usagef("--upstream (TALLYGATE_UPSTREAM) is required: where requests go, such as http://127.0.0.1:3000")
	}
	if err := v.certificatesAreAsked(); err != nil {
		return err
	}
	upstream, err := url.Parse(v.String("upstream"))
	if err != nil {
		return usageError{err} // checked by the setting
	}
	g, err := m.openGate(ctx, v, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	d, err := openProxy(ctx, v, g, upstream)
	if err != nil {
		return err
	}
	stopAdmin, err := m.startGoverning(ctx, v, g, stdout, d.collectors()...)
	if err != nil {
		return errors.Join(err, d.listener.Close())
	}
	defer stopAdmin() // last of all listeners, so that a stop can be watched
	_, _ = fmt.Fprintf(stdout, "tallygate takes requests on %s for %s (store %s, %s from %s)\n",
		reachable(d.listener.Addr()), upstream.Redacted(), maskURL(v.String("store")), count(len(g.rules.Snapshot().Rules()), "rule"), maskURL(v.String("rules")))
	return m.run(ctx, d, g)
}

// upstreamURL takes an upstream, or none.
func upstreamURL(value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil {
		return fmt.Errorf("%.200q is no URL such as http://127.0.0.1:3000", maskURL(value))
	}
	return proxy.CheckUpstream(u)
}

// certificatesAreAsked refuses identities of certificates that no client would show.
func (v *values) certificatesAreAsked() error {
	from, _ := parseSources(v.String("identity")) // checked by the setting
	for _, attr := range slices.Sorted(maps.Keys(from)) {
		if strings.HasPrefix(from[attr], "tls:") && v.String("listen-client-ca-file") == "" {
			return usagef("%s: %s=%s needs listen-client-ca-file: clients are asked for no certificate without", v.where("identity"), attr, from[attr])
		}
	}
	return nil
}

// proxyDoor is the port of the proxy.
type proxyDoor struct {
	proxy    *proxy.Proxy
	listener net.Listener
}

// reservedFor is how long a request may take to tell its cost.
const reservedFor = 10 * time.Minute

func openProxy(ctx context.Context, v *values, g *gate, upstream *url.URL) (*proxyDoor, error) {
	style, err := styleOf(v)
	if err != nil {
		return nil, err
	}
	who, err := newAsker(v, g.log)
	if err != nil {
		return nil, err
	}
	domain := newDomain(v, g)
	if at := domain.look(); at.fault != "" && v.String("domain") == "" {
		return nil, usagef("%s", at.fault)
	}
	cost := v.Int64("cost")
	conf := proxy.Config{
		Upstream: upstream, Domain: domain.name,
		Limit: httplimit.Config{
			Limiter: g.limiter, Domain: v.String("domain"), Route: who.route,
			Cost:         func(*http.Request) int64 { return cost },
			ResetSeconds: style.Reset == headers.ResetSeconds, NoIETF: style.IETF == headers.IETFOff,
			RetryJitter: style.Jitter, Rand: rand.Float64,
		},
		Identity: who.who, Rules: g.rules, LatencyTarget: v.Duration("upstream-latency-target"),
		CostHeader: v.String("cost-header"), PreserveHost: v.Bool("preserve-host"),
		Drain: v.Duration("drain"), Log: g.log,
	}
	if conf.CostHeader != "" {
		conf.Reserver = proxy.Reservations(g.limiter, reservedFor)
	}
	if conf.TLS, err = listenerTLS(v, "listen", g.log); err != nil {
		return nil, err
	}
	if ca := v.String("upstream-ca-file"); ca != "" {
		if conf.UpstreamTLS, err = tlsfiles.Client(tlsfiles.Config{Files: tlsfiles.Files{CA: ca}, Log: g.log}); err != nil {
			return nil, usagef("%s: %w", v.where("upstream-ca-file"), err)
		}
	}
	watchFit(g, domain, cost, conf.Reserver != nil)
	d := &proxyDoor{}
	if d.proxy, err = proxy.New(conf); err != nil {
		return nil, usageError{err}
	}
	if d.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", v.String("listen")); err != nil {
		return nil, fmt.Errorf("%w; --listen (TALLYGATE_LISTEN) sets another address", err)
	}
	return d, nil
}

// watchFit has the log told now and after each change of the rules what keeps them from
// limiting the proxy's requests.
func watchFit(g *gate, domain *ruleDomain, cost int64, reserves bool) {
	fit := &costFit{domain: domain, cost: cost, reserves: reserves, log: g.log}
	look := func() {
		domain.name()
		fit.look()
	}
	end := g.rules.onChange(look)
	g.onClose(func() error { end(); return nil })
	look()
}

func (d *proxyDoor) serve(ctx context.Context) error { return d.proxy.Serve(ctx, d.listener) }
func (d *proxyDoor) close() error                    { return d.proxy.Close() }

func (d *proxyDoor) tell(m *Main) {
	if m.Listening != nil {
		m.Listening(d.listener.Addr().String())
	}
}

// collectors are the figures of the proxy.
func (d *proxyDoor) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		metrics.NewShedCollector(func() int64 { return d.proxy.Stats().Overloaded }),
		metrics.NewProxyCollector(func() metrics.ProxyCounts {
			s := d.proxy.Stats()
			return metrics.ProxyCounts{
				Inflight: s.Inflight, Unreachable: s.Unreachable, Timeouts: s.Timeouts, Broken: s.Broken, Canceled: s.Canceled,
				BadCosts: s.BadCosts, MissingCosts: s.MissingCosts, LostCosts: s.LostCosts,
			}
		}),
		metrics.NewPressureCollector(func() metrics.Pressure {
			p := d.proxy.Pressure()
			out := metrics.Pressure{Factors: map[int]float64{}, Shed: p.Shed}
			for _, f := range p.Factors {
				out.Factors[f.Priority] = float64(f.Milli) / 1000
			}
			return out
		}),
	}
}
