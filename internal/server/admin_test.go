package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/server"
)

// serveAdmin serves on a free port until stop is called, which returns Serve's error.
func serveAdmin(t *testing.T, metrics http.Handler) (url string, stop func() error) {
	t.Helper()
	admin, err := server.NewAdmin(server.AdminConfig{Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- admin.Serve(ctx, listener) }()
	return "http://" + listener.Addr().String(), func() error { cancel(); return <-done }
}

// The admin port serves figures and health, reading only, and nothing else; it
// leaves no goroutine behind.
func TestAdmin(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	url, stop := serveAdmin(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") }))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/metrics", "figures", 200},
		{http.MethodGet, "/healthz", `{"status":"ok"}`, 200},
		{http.MethodPost, "/metrics", "", 405},
		{http.MethodGet, "/debug/pprof/", "", 404},
		{http.MethodPost, "/v1/ratelimit:check", "", 404},
	} {
		request, err := http.NewRequest(tt.method, url+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != tt.status || !strings.HasPrefix(string(body), tt.body) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, response.StatusCode, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A scrape that never ends is cut off when the server stops.
func TestAdmin_slowScrape(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	scraping := make(chan struct{})
	url, stop := serveAdmin(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(scraping)
		<-r.Context().Done()
	}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if response, err := client.Get(url + "/metrics"); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-scraping
	start := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("stopped after %s", took)
	}
	<-answered
}

func TestNewAdmin_refuses(t *testing.T) {
	t.Parallel()
	if _, err := server.NewAdmin(server.AdminConfig{}); err == nil {
		t.Error("an admin port without metrics")
	}
}
