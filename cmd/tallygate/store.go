package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// openStore opens the store of the settings and returns how to close it.
func (m *Main) openStore(ctx context.Context, v *values, pod string, log *slog.Logger) (store.Store, io.Closer, error) {
	if v.String("store") == "memory" {
		memory := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: v.Int("max-buckets"), Now: m.now})
		return memory, io.NopCloser(nil), nil
	}
	conf, err := redisConfig(v, pod, log)
	if err != nil {
		return nil, nil, err
	}
	if !v.Bool("plain-identities") && v.String("key-hash") == "" {
		log.Info("identities are hashed without a secret: who can read the store can check a guess; set key-hash-file, the same on all pods")
	}
	late, err := connect(ctx, log, func(ctx context.Context) (openStore, error) {
		s, err := redisstore.New(ctx, conf)
		if err != nil {
			return nil, err
		}
		audit(ctx, s, log)
		return s, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return late, late, nil
}

// redisConfig is how the settings reach a store on Redis.
func redisConfig(v *values, pod string, log *slog.Logger) (redisstore.Config, error) {
	secure, err := storeTLS(v)
	if err != nil {
		return redisstore.Config{}, err
	}
	conf := redisstore.Config{
		URL:      v.String("store"),
		Username: v.String("store-username"),
		Password: v.String("store-password"),
		TLS:      secure,
		Tags:     identity.NewHasher([]byte(v.String("key-hash"))),
		Deadline: v.Duration("store-deadline"),
		Pod:      pod,

		BreakerFailures: v.Int("breaker-failures"),
		BreakerWithin:   v.Duration("breaker-within"),
		ProbeEvery:      v.Duration("probe-every"),
		FailoverHold:    v.Duration("failover-hold"),
		EmptyHold:       v.Duration("empty-hold"),

		Log: log,
	}
	if v.Bool("plain-identities") {
		conf.Tags = identity.Plain{}
	}
	return conf, nil
}

// audit logs what an operator should know of the servers' settings. It stops no
// start: limits on a badly set store are better than none.
func audit(ctx context.Context, s *redisstore.Store, log *slog.Logger) {
	servers, findings, err := s.Inspect(ctx)
	for _, f := range together(findings, len(servers)) {
		level := slog.LevelWarn
		switch f.Level {
		case redisstore.Broken:
			level = slog.LevelError
		case redisstore.Advice:
			level = slog.LevelInfo
		case redisstore.Warning, redisstore.Unread:
		}
		log.Log(ctx, level, "the store's settings", "shard", f.Shard, "setting", f.Setting, "value", f.Value, "advice", f.Message)
	}
	if err != nil {
		log.Warn("the store's settings could not be read", "error", err)
	}
}

// storeTLS reads the certificates for the store. Nil means the system's.
func storeTLS(v *values) (*tls.Config, error) {
	ca, cert, key := v.String("store-ca-file"), v.String("store-cert-file"), v.String("store-key-file")
	if ca == "" && cert == "" {
		return nil, nil //nolint:nilnil // no TLS settings is a good answer
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("store-ca-file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("store-ca-file: %s holds no PEM certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("store-cert-file, store-key-file: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
