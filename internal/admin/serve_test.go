package admin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/admin"
)

// serve has an API listen, and returns its address and how it ends.
func serve(t *testing.T, read time.Duration, cfg admin.Config) (address string, cancel func(), done <-chan error) {
	t.Helper()
	db := openSQLite(t)
	cfg.Reader, cfg.Writer, cfg.Records, cfg.Historian, cfg.Auditor = db, db, db, db, db
	a, err := admin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if read > 0 {
		a.SetReadTimeout(read)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Serve(ctx, l) }()
	t.Cleanup(cancel)
	return l.Addr().String(), cancel, ended
}

func get(t *testing.T, client *http.Client, url string) (string, error) {
	t.Helper()
	got, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return string(text), err
}

func TestServe_endsWithItsContext(t *testing.T) {
	t.Parallel()
	polling := make(chan struct{})
	address, cancel, done := serve(t, 0, admin.Config{
		Changes: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { close(polling); <-r.Context().Done() }),
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		_, _ = get(t, client, "http://"+address+"/v1/changes")
	}()
	<-polling
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a long poll keeps it from ending")
	}
	<-polled
}

// The time a request may take to arrive does not end the answer to it.
func TestServe_longPollsOutlastTheTimeForReading(t *testing.T) {
	t.Parallel()
	const read = 500 * time.Millisecond
	wait := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			t.Error("the request ended before its answer")
		case <-time.After(2 * read):
			_, _ = io.WriteString(w, "late")
		}
	})
	address, _, _ := serve(t, read, admin.Config{Changes: wait, Metrics: wait})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/v1/changes", "/metrics"} {
		if got, err := get(t, client, "http://"+address+path); err != nil || got != "late" {
			t.Errorf("%s: got %q, %v", path, got, err)
		}
	}
}

func TestServe_speaksTLS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := serve(t, 0, admin.Config{TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	if got, err := get(t, client, "https://"+address+"/healthz"); err != nil || got != "{\"status\":\"ok\"}\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := get(t, client, "http://"+address+"/healthz"); err == nil && got == "{\"status\":\"ok\"}\n" {
		t.Error("it answers without TLS")
	}
}
