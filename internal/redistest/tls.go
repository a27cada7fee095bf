package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Secure is a server that speaks only TLS, and what a client needs to trust it
// and be trusted.
type Secure struct {
	*Server
	// CAFile holds the authority that signed the server's certificate and the
	// client's, CertFile and KeyFile the client's. All are PEM.
	CAFile, CertFile, KeyFile string
	// Config is the same for a Go client.
	Config *tls.Config
}

// TLS starts a TLS server for this test with certificates made for it, valid for
// 127.0.0.1 and localhost. It asks no certificate of clients, unless args say
// "--tls-auth-clients", "yes".
func TLS(t testing.TB, args ...string) *Secure {
	t.Helper()
	needRedis(t)
	s, err := startTLS(t.TempDir(), args...)
	return started(t, s, err, s.watch)
}

func (s *Secure) watch(t testing.TB) { t.Helper(); s.Server.watch(t) }

func startTLS(dir string, args ...string) (*Secure, error) {
	s := &Secure{
		CAFile:   filepath.Join(dir, "ca.crt"),
		CertFile: filepath.Join(dir, "client.crt"),
		KeyFile:  filepath.Join(dir, "client.key"),
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	if err := writePEM(s.CAFile, "CERTIFICATE", ca.cert.Raw); err != nil {
		return nil, err
	}
	serverCert, serverKey := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	if err := ca.issue("redis-server", serverCert, serverKey); err != nil {
		return nil, err
	}
	if err := ca.issue("client", s.CertFile, s.KeyFile); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	s.Config = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	s.Server, err = startWith(plan{dir: dir, conf: s.Config, args: func(p int) ([]string, error) {
		return append([]string{
			"--port", "0", "--tls-port", strconv.Itoa(p),
			"--tls-cert-file", serverCert, "--tls-key-file", serverKey,
			"--tls-ca-cert-file", s.CAFile, "--tls-auth-clients", "no",
		}, args...), nil
	}})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// authority signs certificates that live for an hour.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template := certificate("redistest authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// issue writes a new certificate and its key.
func (a *authority) issue(name, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate(name), a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("write the key of %s: %w", name, err)
	}
	return writePEM(keyFile, "PRIVATE KEY", secret)
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
	}
}

func writePEM(file, kind string, der []byte) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
