// Package tlsfiles makes TLS of files that somebody else renews: each handshake
// uses the newest certificate, key and authorities that load. See package newest
// for how: no goroutine, at most one look a second, the last good ones stay.
//
//	Files ─► Server ─► *tls.Config of a listener; with CA it asks clients for theirs
//	     └─► Client ─► *tls.Config of a client; with Cert it shows one
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/newest"
)

// Files names files in PEM.
type Files struct {
	// Cert and Key are the own certificate, with those between it and the root
	// after it, and its key. A server needs both, a client both or none.
	Cert, Key string
	// CA are authorities: on a server those whose clients it takes, and no others;
	// "" asks clients for nothing. On a client those whose servers it believes; ""
	// means the system's.
	CA string
}

// Config says how.
type Config struct {
	Files Files
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told of files that cannot be used; nil means none.
	Log *slog.Logger
}

// loaded is what the files hold.
type loaded struct {
	cert *tls.Certificate
	ca   *x509.CertPool
}

// Server returns the configuration of a listener. Connections that are open keep
// what they began with.
func Server(cfg Config) (*tls.Config, error) {
	if cfg.Files.Cert == "" || cfg.Files.Key == "" {
		return nil, errors.New("TLS needs a certificate and its key: name both files")
	}
	files, err := open(cfg)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// All of it for each handshake: a removed authority must not go on being believed.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Get().server(), nil },
		// Never asked, since the function above answers; net/http wants one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.Get().cert, nil },
	}, nil
}

func (l *loaded) server() *tls.Config {
	out := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{*l.cert},
		// A ticket would let a client of a removed authority in until it ends.
		SessionTicketsDisabled: true,
	}
	if l.ca != nil {
		out.ClientCAs, out.ClientAuth = l.ca, tls.RequireAndVerifyClientCert
	}
	return out
}

// Client returns the configuration of a client. Authorities are those of its
// start, its own certificate is the newest.
func Client(cfg Config) (*tls.Config, error) {
	if (cfg.Files.Cert == "") != (cfg.Files.Key == "") {
		return nil, errors.New("a client's certificate and its key go together: name both files or none")
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.Files == (Files{}) {
		return out, nil
	}
	files, err := open(cfg)
	if err != nil {
		return nil, err
	}
	out.RootCAs = files.Get().ca
	if cfg.Files.Cert != "" {
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return files.Get().cert, nil }
	}
	return out, nil
}

func open(cfg Config) (*newest.Value[*loaded], error) {
	var names []string
	for _, name := range []string{cfg.Files.Cert, cfg.Files.Key, cfg.Files.CA} {
		if name != "" {
			names = append(names, name)
		}
	}
	return newest.New(newest.Config[*loaded]{Files: names, Load: cfg.Files.load, Now: cfg.Now, Log: cfg.Log})
}

// load reads all files.
func (f Files) load() (*loaded, error) {
	out := &loaded{}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %s", f.Cert, f.Key, strings.TrimPrefix(err.Error(), "tls: "))
		}
		out.cert = &pair
	}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		out.ca = x509.NewCertPool()
		if !out.ca.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("authorities %s: there is no certificate in it; it must be PEM", f.CA)
		}
	}
	return out, nil
}
