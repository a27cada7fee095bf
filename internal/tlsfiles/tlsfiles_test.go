package tlsfiles_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/tlsfiles"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// folder holds files.
type folder struct {
	dir     string
	changes int
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(f.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	f.changes++
	at := time.Unix(1_700_000_000+int64(f.changes), 0)
	if err := os.Chtimes(f.path(name), at, at); err != nil {
		t.Fatal(err)
	}
}

// issue writes NAME.pem and NAME.key with a serial number.
func (f *folder) issue(t *testing.T, a *authority, name string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, name+".pem", "CERTIFICATE", der)
	f.write(t, name+".key", "EC PRIVATE KEY", text)
}

// serve answers with TLS until the test ends.
func serve(t *testing.T, cfg tlsfiles.Config) string {
	t.Helper()
	conf, err := tlsfiles.Server(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Proto", r.Proto) }))
	s.TLS = conf
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// shake makes a handshake, and returns the serial number of the server's
// certificate. A server refuses a client after the handshake: it reads to hear of it.
func shake(address string, conf *tls.Config) (int64, error) {
	conn, err := tls.Dial("tcp", address, conf)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
		return 0, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestServer_servesTheNewestCertificateThatLoads(t *testing.T) {
	t.Parallel()
	f, ca := &folder{dir: t.TempDir()}, newAuthority(t, "ca")
	f.issue(t, ca, "server", 1)
	f.write(t, "ca.pem", "CERTIFICATE", ca.cert.Raw)
	steps := make(chan time.Time, 1)
	steps <- time.Unix(1_800_000_000, 0)
	now := func() time.Time { // each look is a second later
		at := <-steps
		steps <- at.Add(time.Second)
		return at
	}
	address := serve(t, tlsfiles.Config{Files: tlsfiles.Files{Cert: f.path("server.pem"), Key: f.path("server.key")}, Now: now})
	client, err := tlsfiles.Client(tlsfiles.Config{Files: tlsfiles.Files{CA: f.path("ca.pem")}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(serial int64) {
		t.Helper()
		if got, err := shake(address, client); err != nil || got != serial {
			t.Errorf("got certificate %d, %v; want %d", got, err, serial)
		}
	}
	want(1)
	f.issue(t, ca, "server", 2)
	want(2)
	// A certificate without its key: half of a replacement.
	key, err := os.ReadFile(f.path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	f.issue(t, ca, "server", 3)
	newKey, err := os.ReadFile(f.path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path("server.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	want(2)
	if err := os.WriteFile(f.path("server.key"), newKey, 0o600); err != nil {
		t.Fatal(err)
	}
	want(3)
	if err := os.Remove(f.path("server.pem")); err != nil {
		t.Fatal(err)
	}
	want(3)
	old := client.Clone()
	old.MaxVersion = tls.VersionTLS11
	if _, err := shake(address, old); err == nil {
		t.Error("TLS 1.1 is good enough")
	}
}

func TestServer_takesClientsOfItsAuthoritiesAlone(t *testing.T) {
	t.Parallel()
	f, ca, clients, others := &folder{dir: t.TempDir()}, newAuthority(t, "ca"), newAuthority(t, "clients"), newAuthority(t, "others")
	f.issue(t, ca, "server", 1)
	f.issue(t, clients, "good", 2)
	f.issue(t, others, "bad", 3)
	f.write(t, "ca.pem", "CERTIFICATE", ca.cert.Raw)
	f.write(t, "clients.pem", "CERTIFICATE", clients.cert.Raw)
	at := time.Unix(1_800_000_000, 0)
	address := serve(t, tlsfiles.Config{
		Files: tlsfiles.Files{Cert: f.path("server.pem"), Key: f.path("server.key"), CA: f.path("clients.pem")},
		Now:   func() time.Time { at = at.Add(time.Minute); return at },
	})
	try := func(name string) error {
		t.Helper()
		files := tlsfiles.Files{CA: f.path("ca.pem")}
		if name != "" {
			files.Cert, files.Key = f.path(name+".pem"), f.path(name+".key")
		}
		conf, err := tlsfiles.Client(tlsfiles.Config{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		conf.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		_, err = shake(address, conf)
		return err
	}
	if err := try("good"); err != nil {
		t.Errorf("a client of the authority: %v", err)
	}
	for _, name := range []string{"", "bad"} {
		if err := try(name); err == nil {
			t.Errorf("client %q is taken", name)
		}
	}
	// The authority is replaced: its clients are none any more.
	f.write(t, "clients.pem", "CERTIFICATE", others.cert.Raw)
	if err := try("good"); err == nil {
		t.Error("a client of the old authority is taken")
	}
	if err := try("bad"); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
}

func TestServer_speaksHTTP2(t *testing.T) {
	t.Parallel()
	f, ca := &folder{dir: t.TempDir()}, newAuthority(t, "ca")
	f.issue(t, ca, "server", 1)
	f.write(t, "ca.pem", "CERTIFICATE", ca.cert.Raw)
	address := serve(t, tlsfiles.Config{Files: tlsfiles.Files{Cert: f.path("server.pem"), Key: f.path("server.key")}})
	conf, err := tlsfiles.Client(tlsfiles.Config{Files: tlsfiles.Files{CA: f.path("ca.pem")}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	got, err := client.Get("https://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.Header.Get("Proto") != "HTTP/2.0" {
		t.Errorf("got %s", got.Header.Get("Proto"))
	}
}

func TestConfig_faults(t *testing.T) {
	t.Parallel()
	f, ca := &folder{dir: t.TempDir()}, newAuthority(t, "ca")
	f.issue(t, ca, "a", 1)
	f.issue(t, ca, "b", 2)
	if err := os.WriteFile(f.path("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]tlsfiles.Files{
		"nothing":          {},
		"no key":           {Cert: f.path("a.pem")},
		"another's key":    {Cert: f.path("a.pem"), Key: f.path("b.key")},
		"no file":          {Cert: f.path("none"), Key: f.path("a.key")},
		"no authority":     {Cert: f.path("a.pem"), Key: f.path("a.key"), CA: f.path("empty")},
		"authority absent": {Cert: f.path("a.pem"), Key: f.path("a.key"), CA: f.path("none")},
	} {
		if _, err := tlsfiles.Server(tlsfiles.Config{Files: files}); err == nil {
			t.Errorf("a server of %s: no error", name)
		}
		if _, err := tlsfiles.Client(tlsfiles.Config{Files: files}); err == nil && name != "nothing" {
			t.Errorf("a client of %s: no error", name)
		}
	}
}
