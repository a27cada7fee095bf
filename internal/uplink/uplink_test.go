package uplink_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/uplink"
)

const token = "tg_hidden"

func open(t *testing.T, cfg uplink.Config) *uplink.Client {
	t.Helper()
	c, err := uplink.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(most int64) uplink.Request {
	return uplink.Request{Method: http.MethodGet, Path: []string{"v1", "x"}, MaxAnswer: most}
}

func TestDo(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+token {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = w.Write([]byte(text))
		}
	}
	mux.Handle("/v1/x", answer(`{"n":7}`))
	mux.Handle("/moved/v1/x", http.RedirectHandler("/v1/x", http.StatusTemporaryRedirect))
	mux.Handle("/round/v1/x", http.RedirectHandler("/round/v1/x", http.StatusTemporaryRedirect))
	mux.HandleFunc("/hang/v1/x", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/none/v1/x", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		name, base, token string
		most              int64
		want              int
		says              string
	}{
		{"an answer", "", token, 7, 7, ""},
		{"with a slash at the base", "/", token, 7, 7, ""},
		{"one byte too long", "", token, 6, 0, "above 6 bytes"},
		{"redirected on the same server", "/moved", token, 100, 7, ""},
		{"redirected in a circle", "/round", token, 100, 0, "redirects too often"},
		{"without a token", "", "", 100, 0, "401 Unauthorized"},
		{"without a body", "/none", token, 100, 0, ""},
		{"without an answer", "/hang", token, 100, 0, context.DeadlineExceeded.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wait := time.Minute
			if tt.says == context.DeadlineExceeded.Error() {
				wait = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			var got struct{ N int }
			err := open(t, uplink.Config{URL: server.URL + tt.base, Token: tt.token}).Do(ctx, get(tt.most), &got)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("got error %v, want %q", err, tt.says)
			}
			if err == nil && got.N != tt.want {
				t.Errorf("got %d, want %d", got.N, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), token) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

// No server but the one that is named gets the token, whatever that one says.
func TestTheTokenStays(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host }))
	defer other.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler("http://"+strings.TrimPrefix(other.URL, "http://"), http.StatusFound))
	defer secure.Close()
	plain := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusPermanentRedirect))
	defer plain.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for _, cfg := range []uplink.Config{
		{URL: plain.URL, Token: token},
		{URL: secure.URL, Token: token, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	} {
		err := open(t, cfg).Do(t.Context(), get(100), nil)
		if err == nil || !strings.Contains(err.Error(), "another server") {
			t.Errorf("%s: %v", cfg.URL, err)
		}
	}
	select {
	case host := <-asked:
		t.Errorf("%s was asked", host)
	default:
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`"` + r.URL.RawQuery + `"`))
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	request := get(100)
	request.Query = url.Values{"since": {"1"}}
	var got string
	trusting := open(t, uplink.Config{URL: server.URL, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	if err := trusting.Do(t.Context(), request, &got); err != nil || got != "since=1" {
		t.Errorf("got %q, %v", got, err)
	}
	var unknown x509.UnknownAuthorityError
	if err := open(t, uplink.Config{URL: server.URL}).Do(t.Context(), request, &got); !errors.As(err, &unknown) {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}
