package request_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/tallygate/tallygate/identity/request"
)

func TestOf(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/search?q=1", nil)
	r.Header.Set("X-Api-Key", "K1")
	f := request.Of(r)
	if f.Peer != "192.0.2.1:1234" || f.Header["X-Api-Key"][0] != "K1" || f.Query != "q=1" || f.Certificate != nil {
		t.Errorf("got %+v", f)
	}
	if f := request.Of(&http.Request{}); f.Query != "" || f.Certificate != nil {
		t.Errorf("an empty request says %+v", f)
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	subject := pkix.Name{CommonName: "svc"}
	uri := &url.URL{Scheme: "spiffe", Host: "house", Path: "/svc"}
	for _, tt := range []struct {
		name     string
		cert     x509.Certificate
		cn, san  string
		presents bool // presented, not verified
	}{
		{"URI first", x509.Certificate{Subject: subject, URIs: []*url.URL{uri}, DNSNames: []string{"a.example"}}, "svc", "spiffe://house/svc", false},
		{"then DNS", x509.Certificate{DNSNames: []string{"a.example", "b.example"}, EmailAddresses: []string{"a@example"}}, "", "a.example", false},
		{"then email", x509.Certificate{EmailAddresses: []string{"a@example"}}, "", "a@example", false},
		{"no name", x509.Certificate{}, "", "", false},
		{"not verified", x509.Certificate{Subject: subject}, "", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{&tt.cert}}
			if !tt.presents {
				state.VerifiedChains = [][]*x509.Certificate{{&tt.cert}}
			}
			c := request.Of(&http.Request{TLS: state}).Certificate
			if tt.presents {
				if c != nil {
					t.Error("an unverified certificate is believed")
				}
				return
			}
			if cn, san := c.Name(false), c.Name(true); cn != tt.cn || san != tt.san {
				t.Errorf("got %q and %q, want %q and %q", cn, san, tt.cn, tt.san)
			}
		})
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ method, pattern, want string }{
		{"GET", "", "other"},
		{"GET", "GET /v1/labels/{id}", "GET /v1/labels/{id}"},
		{"HEAD", "GET /v1/labels/{id}", "GET /v1/labels/{id}"},
		{"POST", "/login", "POST /login"},
		{"", "/login", "GET /login"},
		{"HEAD", "/login", "GET /login"},
		{"EVADE", "/login", "OTHER /login"},
		{"post", "/login", "OTHER /login"},
	} {
		if got := request.Name(tt.method, tt.pattern); got != tt.want {
			t.Errorf("Name(%q, %q) = %q, want %q", tt.method, tt.pattern, got, tt.want)
		}
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	templates, err := request.NewTemplates([]string{
		"GET /v1/labels/{id}", "POST /v1/labels", "/v1/files/{path...}", "POST /login", "GET /v1/labels/search", "GET /old/", "GET /{$}",
	})
	if err != nil {
		t.Fatal(err)
	}
	const labels = "GET /v1/labels/{id}"
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/v1/labels/5", labels},
		{"HEAD", "/v1/labels/5", labels},
		{"GET", "/v1//labels/5", labels},
		{"GET", "//v1/labels/5", labels},
		{"GET", "/./v1/./labels/5", labels},
		{"GET", "/v1/x/../labels/5", labels},
		{"GET", "/v1/x/%2e%2E/labels/5", labels},
		{"GET", "/v1/%6C%61bels/5", labels},
		{"GET", "/v1/labels/5/", labels},
		{"GET", "/v1/labels/5//", labels},
		{"GET", "/v1/labels/5?a=/b", labels},
		{"GET", "/v1/labels/a%2Fb", labels},
		{"GET", "/v1%2Flabels%2F5", labels},
		{"GET", "/v1/labels/%C3%A9", labels},
		{"GET", "/v1/labels/search/", "GET /v1/labels/search"},
		{"DELETE", "/v1/labels/5", "other"},
		{"POST", "/v1/labels", "POST /v1/labels"},
		{"POST", "/v1/labels/", "POST /v1/labels"},
		{"GET", "/v1/files/a/b/c", "GET /v1/files/{path...}"},
		{"PUT", "/v1/files/", "PUT /v1/files/{path...}"},
		{"PUT", "/v1/files", "PUT /v1/files/{path...}"},
		{"GET", "/old", "GET /old/"},
		{"GET", "/old/x", "GET /old/"},
		{"GET", "/", "GET /{$}"},
		{"GET", "/nowhere", "other"},
		{"GET", "/v1/labels/" + strings.Repeat("x", 9_000), "other"},
	} {
		r := httptest.NewRequest(tt.method, "http://example.com"+tt.path, nil)
		if got := templates.Route(r); got != tt.want {
			t.Errorf("%s %.60s is %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
	if got := templates.Route(&http.Request{}); got != "other" {
		t.Errorf("a request without URL is %q", got)
	}
}

func TestNewTemplatesRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		list []string
		want string
	}{
		{"malformed", []string{"GET /a", "GET labels"}, `routes/1: template "GET labels": at offset 4: host/path missing /`},
		{"a contradiction", []string{"/a/{x}", "/{x}/b"}, `routes/1: template "/{x}/b": conflicts with template "/a/{x}": /{x}/b and /a/{x} both match some paths, like "/a/b". But`},
		{"twice", []string{"GET /a", "GET /a"}, `template "GET /a": conflicts with template "GET /a": GET /a matches the same requests as GET /a`},
		{"too many", make([]string, request.MaxTemplates+1), "1001 templates are above 1000"},
	} {
		if _, err := request.NewTemplates(tt.list); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

// What routers leave in a request is its template: in chi also below a mounted
// router.
func TestRoute(t *testing.T) {
	t.Parallel()
	var got string
	see := func(_ http.ResponseWriter, r *http.Request) { got = request.Route(r) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/labels/{id}", see)
	router := chi.NewRouter()
	router.Route("/v1", func(r chi.Router) { r.Get("/labels/{id}", see) })
	for name, h := range map[string]http.Handler{"net/http": mux, "chi": router} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/labels/5", nil))
		if got != "GET /v1/labels/{id}" {
			t.Errorf("%s: got %q", name, got)
		}
	}
	see(nil, httptest.NewRequest(http.MethodGet, "/v1/labels/5", nil))
	if got != request.Other {
		t.Errorf("without a router the route is %q", got)
	}
}

func FuzzTemplatesRoute(f *testing.F) {
	templates, err := request.NewTemplates([]string{"GET /v1/labels/{id}", "/v1/files/{path...}"})
	if err != nil {
		f.Fatal(err)
	}
	known := map[string]bool{"other": true, "GET /v1/labels/{id}": true, "GET /v1/files/{path...}": true}
	for _, s := range []string{"/v1/labels/5", "//", "/%2e%2e/", "/v1/%6Cabels/%", "*", ""} {
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, path, raw string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawPath: raw}}
		if got := templates.Route(r); !known[got] {
			t.Fatalf("route %q is none of the list", got)
		}
	})
}

func BenchmarkTemplatesRoute(b *testing.B) {
	list := make([]string, 0, 100)
	for i := range 100 {
		list = append(list, "GET /v1/things"+strconv.Itoa(i)+"/{id}")
	}
	templates, err := request.NewTemplates(list)
	if err != nil {
		b.Fatal(err)
	}
	for name, path := range map[string]string{"plain": "/v1/things7/5", "odd": "/v1//th%69ngs7/5/"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if templates.Route(r) == request.Other {
					b.Fatal("no route")
				}
			}
		})
	}
}
