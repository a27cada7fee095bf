package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/internal/rulestore/kept"
	"github.com/tallygate/tallygate/internal/rulestore/remote"
	"github.com/tallygate/tallygate/internal/tlsfiles"
	"github.com/tallygate/tallygate/rules"
)

// plane is what a control plane does beside its API: it feeds pods, hears their
// reports and stops canaries.
type plane struct {
	hub        *feed.Hub
	registry   *fleet.Registry
	supervisor *fleet.Supervisor
}

// startPlane starts the control plane of a database or file of rules.
func (m *Main) startPlane(f *followed, log *slog.Logger) (p *plane, err error) {
	hub := f.hub
	p = &plane{hub: hub}
	p.registry = fleet.NewRegistry(fleet.RegistryConfig{Revision: hub.Revision, Now: m.Now, Log: log})
	p.supervisor, err = fleet.NewSupervisor(fleet.SupervisorConfig{
		Rules:  func() []rulestore.Rule { return hub.Set().Rules },
		Trials: p.registry.Trials,
		Writer: f.store,
		Now:    m.Now,
		Log:    log,
	})
	if err != nil {
		return nil, err
	}
	p.supervisor.Start()
	return p, nil
}

// Close ends all of it but the hub.
func (p *plane) Close() error { return p.supervisor.Close() }

// serve gives the API what the control plane knows.
func (p *plane) serve(cfg *admin.Config, show func(domain, key string) string) {
	cfg.Fleet, cfg.Prover, cfg.Changes = p.registry, p.supervisor, p.hub
	cfg.Recent = func(domain, rule string, key []string) (float64, bool) {
		return p.registry.Rate(domain, rule, show(domain, rules.Key(key)))
	}
}

// showKey is how keys are shown outside of the pod: as they are only where they are
// no secret.
func showKey(v *values) func(domain, key string) string {
	if v.Bool("plain-identities") {
		plain := identity.Plain{}
		return func(_, key string) string { return plain.Redact(key) }
	}
	hasher := identity.NewHasher([]byte(v.String("key-hash")))
	return func(domain, key string) string { return string(hasher.AppendTag(nil, domain, key)) }
}

// uplinkTLS is how the settings trust the control plane. Nil means the system's way.
func uplinkTLS(v *values, log *slog.Logger) (*tls.Config, error) {
	files := tlsfiles.Files{Cert: v.String("control-cert-file"), Key: v.String("control-key-file"), CA: v.String("control-ca-file")}
	if files == (tlsfiles.Files{}) {
		return nil, nil //nolint:nilnil // no TLS settings is a good answer
	}
	return tlsfiles.Client(tlsfiles.Config{Files: files, Log: log})
}

// openRemote opens the rules of record behind a control plane.
func openRemote(v *values, where string) (*ruleStore, error) {
	c, err := remoteClient(v, where)
	if err != nil {
		return nil, err
	}
	return &ruleStore{ruleBook: sinceless{c}, control: c, close: func() error { c.HTTP.CloseIdleConnections(); return nil }}, nil
}

func remoteClient(v *values, where string) (*remote.Client, error) {
	secure, err := uplinkTLS(v, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return &remote.Client{
		URL: where, Token: v.String("token"),
		HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: secure, Proxy: http.ProxyFromEnvironment}},
	}, nil
}

// sinceless is a control plane as a command asks it: for all, not for changes.
type sinceless struct{ *remote.Client }

// Since is never asked: commands look once.
func (sinceless) Since(context.Context, int64) (rulestore.Changes, error) {
	return rulestore.Changes{}, errors.ErrUnsupported
}

// uplinks are the two ways of a pod to its control plane.
type uplinks struct {
	feed    *feed.Client
	reports *fleet.Client
}

func openUplinks(v *values, now func() time.Time, log *slog.Logger) (*uplinks, error) {
	secure, err := uplinkTLS(v, log)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	where, token := v.String("rules"), v.String("token")
	u := &uplinks{}
	if u.feed, err = feed.NewClient(feed.ClientConfig{URL: where, Token: token, TLS: secure, Now: now, Log: log}); err != nil {
		return nil, err
	}
	if u.reports, err = fleet.NewClient(fleet.ClientConfig{URL: where, Token: token, TLS: secure}); err != nil {
		return nil, errors.Join(err, u.feed.Close())
	}
	return u, nil
}

// Close closes idle connections.
func (u *uplinks) Close() error { return errors.Join(u.feed.Close(), u.reports.Close()) }

// keepRules has the last good rules of a reader kept on disk, if the settings say
// where.
func keepRules(v *values, reader rulestore.Reader, log *slog.Logger) (rulestore.Reader, func() error, error) {
	path := v.String("snapshot-file")
	if path == "" {
		return reader, func() error { return nil }, nil
	}
	k, err := kept.New(kept.Config{Reader: reader, Path: path, Source: kept.Identity(v.String("rules")), Log: log})
	if err != nil {
		return nil, nil, err
	}
	k.Start()
	return k, k.Close, nil
}

// startReports has this pod report to the control plane, until the returned stop.
func (m *Main) startReports(g *gate, sink fleet.Sink) (stop func() error, err error) {
	f, limiter := g.rules, g.limiter
	start, program := time.Now(), version().Version
	r, err := fleet.NewReporter(fleet.ReporterConfig{Sink: sink, Every: m.ReportEvery, Log: g.log, Build: func(sinceMS int64) fleet.Report {
		report := fleet.Report{
			Pod: g.pod, Revision: f.Snapshot().Revision(), Version: program, UptimeMS: time.Since(start).Milliseconds(),
			Trials: limiter.Trials(sinceMS, f.now()),
		}
		for _, p := range f.Problems().Faults() {
			if len(report.Faults) < fleet.MaxFaults {
				report.Faults = append(report.Faults, upTo(p.String(), fleet.MaxFault))
			}
		}
		for _, s := range limiter.Stats().Store.Shards {
			if len(report.Shards) < fleet.MaxShards {
				report.Shards = append(report.Shards, fleet.Shard{Shard: upTo(s.Shard, fleet.MaxName), Breaker: breakerOf(s.Down)})
			}
		}
		for _, k := range limiter.Busiest(fleet.MaxRates) {
			report.Rates = append(report.Rates, fleet.KeyRate{Domain: k.Domain, Rule: k.Rule, Key: k.Key, PerSecond: k.PerSecond})
		}
		return report
	}})
	if err != nil {
		return nil, err
	}
	r.Start()
	end := f.onChange(r.News)
	return func() error { end(); return r.Close() }, nil
}

func breakerOf(down time.Duration) string {
	if down > 0 {
		return "open"
	}
	return "closed"
}

// upTo cuts a text at the end of a rune, where the control plane takes no more.
func upTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xC0 == 0x80 {
		most--
	}
	return s[:most]
}
