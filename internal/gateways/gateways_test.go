package gateways_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// gateway starts a gateway in front of a setting and returns where it listens.
type gateway func(t testing.TB, s *setting) string

func nginx(t testing.TB, s *setting) string {
	t.Helper()
	program := need(t, "nginx", "on Debian: apt-get install nginx-light")
	dir, addr := t.TempDir(), port(t)
	conf := "daemon off;\npid nginx.pid;\nerror_log stderr;\nworker_processes 1;\nevents { worker_connections 256; }\nhttp {\n"
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += fmt.Sprintf("%s_temp_path %s;\n", name, filepath.Join(dir, name))
	}
	conf += "access_log off;\n" + s.place(snippets(t, "gateways/nginx.md", "nginx")[0], addr) + "}\n"
	file := write(t, dir, "nginx.conf", conf)
	run(t, dir, addr, program, "-p", dir, "-e", "stderr", "-c", file)
	return addr
}

func haproxy(t testing.TB, s *setting) string {
	t.Helper()
	program := need(t, "haproxy", "on Debian: apt-get install haproxy")
	dir, addr := t.TempDir(), port(t)
	lua := write(t, dir, "tallygate.lua", s.place(snippets(t, "gateways/haproxy.md", "lua")[0], addr))
	conf := strings.ReplaceAll(s.place(snippets(t, "gateways/haproxy.md", "haproxy")[0], addr), "/etc/haproxy/tallygate.lua", lua)
	run(t, dir, addr, program, "-db", "-f", write(t, dir, "haproxy.cfg", conf))
	return addr
}

func caddy(t testing.TB, s *setting) string {
	t.Helper()
	program := tool(t, "caddy", "on Debian: apt-get install caddy")
	dir, addr := t.TempDir(), port(t)
	conf := "{\n\tadmin off\n}\n" + s.place(snippets(t, "gateways/caddy.md", "caddyfile")[0], addr)
	run(t, dir, addr, program, "run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", conf))
	return addr
}

// behaviour is what gateways differ in.
type behaviour struct {
	start gateway
	// away is the answer while Tallygate is away.
	away int
	// spoof is the answer to a client that writes the gateway's own headers.
	spoof int
}

func TestGateways(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]behaviour{
		"NGINX":   {nginx, http.StatusOK, http.StatusOK},
		"HAProxy": {haproxy, http.StatusOK, http.StatusOK},
		"Caddy":   {caddy, http.StatusBadGateway, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			addr := b.start(t, s)
			t.Run("limits by key and route", func(t *testing.T) { limits(t, s, addr) })
			t.Run("a body and another method", func(t *testing.T) { login(t, addr) })
			t.Run("headers of the client's", func(t *testing.T) { spoofs(t, addr, b.spoof) })
			t.Run("bad requests", func(t *testing.T) { bad(t, addr) })
			t.Run("the store is away", func(t *testing.T) { storeAway(t, s, addr) })
			t.Run("Tallygate is away", func(t *testing.T) {
				s.stop(t)
				if r, body := ask(t, addr, http.MethodGet, "/open", ""); r.StatusCode != b.away {
					t.Errorf("%d %s, want %d", r.StatusCode, body, b.away)
				}
			})
		})
	}
}

// limits: SEC-09, HDR-09. Three requests of a key pass, whatever the parameter.
func limits(t *testing.T, s *setting, addr string) {
	t.Helper()
	for i := range 3 {
		r, body := ask(t, addr, http.MethodGet, fmt.Sprintf("/v1/labels/%d?page=2", i), "", "X-Api-Key", "acct_7Q2")
		if r.StatusCode != 200 || !strings.HasPrefix(body, fmt.Sprintf("GET /v1/labels/%d?page=2\n", i)) {
			t.Fatalf("%d %s", r.StatusCode, body)
		}
		for name, want := range map[string]string{
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": fmt.Sprint(2 - i), "RateLimit-Policy": `"labels";q=3;w=60`,
		} {
			if got := r.Header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("request %d: %s %q, want %s", i+1, name, got, want)
			}
		}
	}
	before := s.reached.Load()
	r, body := ask(t, addr, http.MethodGet, "/v1/labels/9?deny_status=401", "", "X-Api-Key", "acct_7Q2")
	if r.StatusCode != 429 || !strings.Contains(body, `"code":"rate_limit_exceeded"`) || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, body)
	}
	// The first of the three may be some time ago.
	if retry, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || retry > 60 || retry < 30 {
		t.Errorf("Retry-After %d, %v, want about 60", retry, err)
	}
	if got := r.Header.Values("X-RateLimit-Remaining"); len(got) != 1 || got[0] != "0" {
		t.Errorf("X-RateLimit-Remaining %q", got)
	}
	if s.reached.Load() != before {
		t.Error("a refused request reached the application")
	}
	if r, _ := ask(t, addr, http.MethodGet, "/v1/labels/9", "", "X-Api-Key", "acct_other"); r.StatusCode != 200 {
		t.Errorf("another key: %d", r.StatusCode)
	}
	r, body = ask(t, addr, http.MethodGet, "/unlimited", "")
	if r.StatusCode != 200 || len(r.Header.Values("X-RateLimit-Limit")) != 0 {
		t.Errorf("without a rule: %d %v %s", r.StatusCode, r.Header, body)
	}
}

// login: two a minute of an address, and the body reaches the application.
func login(t *testing.T, addr string) {
	t.Helper()
	for range 2 {
		if r, body := ask(t, addr, http.MethodPost, "/login", "user=kim"); r.StatusCode != 200 || !strings.HasPrefix(body, "POST /login\nuser=kim\n") {
			t.Fatalf("%d %s", r.StatusCode, body)
		}
	}
	// SEC-01: another address in front of the list is the client's text.
	if r, body := ask(t, addr, http.MethodPost, "/login", "user=kim", "X-Forwarded-For", "198.51.100.7"); r.StatusCode != 429 {
		t.Errorf("%d %s", r.StatusCode, body)
	}
}

// spoofs: what a client writes under the gateway's names chooses no bucket, and what it
// writes under ours reaches nobody.
func spoofs(t *testing.T, addr string, want int) {
	t.Helper()
	header := []string{
		"X-Api-Key", "acct_spoof",
		"X-Forwarded-Uri", "/unlimited", "X-Forwarded-Method", "POST", "X-Original-URI", "/unlimited", "X-Original-Method", "POST",
		"X-RateLimit-Remaining", "1000000", "RateLimit", `"theirs";r=9;t=1`,
	}
	for i := range 4 {
		want := want
		if i == 3 {
			want = 429
		}
		r, body := ask(t, addr, http.MethodGet, "/v1/labels/1", "", header...)
		if r.StatusCode != want {
			t.Errorf("request %d: %d %s, want %d", i+1, r.StatusCode, body, want)
		}
		if strings.Contains(body, "1000000") || strings.Contains(body, "theirs") {
			t.Errorf("the application saw\n%s", body)
		}
	}
}

// bad: never a gateway's own error page.
func bad(t *testing.T, addr string) {
	t.Helper()
	if r, body := ask(t, addr, http.MethodGet, "/v1/labels/1", "", "X-Api-Key", "a", "X-Api-Key", "b"); r.StatusCode != 400 {
		t.Errorf("two keys: %d %s", r.StatusCode, body)
	}
	if r, body := ask(t, addr, http.MethodGet, "/v1/labels/1", "", "X-Api-Key", "large", "X-Junk", strings.Repeat("j", 7<<10), "X-More", strings.Repeat("m", 7<<10)); r.StatusCode != 200 {
		t.Errorf("14 KiB of headers: %d %.200s", r.StatusCode, body)
	}
	if r, body := ask(t, addr, http.MethodGet, "/v1/labels/1", "", "X-Api-Key", strings.Repeat("k", 5<<10)); r.StatusCode != 413 {
		t.Errorf("a key of 5 KiB: %d %.200s", r.StatusCode, body)
	}
}

// storeAway: a gateway's client gets Tallygate's own answer, not the gateway's error page.
func storeAway(t *testing.T, s *setting, addr string) {
	t.Helper()
	s.redis.Kill()
	for range 5 { // of which some find the connection broken, some none, some the breaker open
		r, body := ask(t, addr, http.MethodGet, "/closed", "")
		if (r.StatusCode != 503 && r.StatusCode != 504) || r.Header.Get("Retry-After") != "1" {
			t.Errorf("closed: %d %v %s", r.StatusCode, r.Header, body)
		}
		if r, body := ask(t, addr, http.MethodGet, "/open", ""); r.StatusCode != 200 {
			t.Errorf("open: %d %s", r.StatusCode, body)
		}
	}
}

// TestStrangers: a gateway that Tallygate does not trust refuses, and both its clients and
// the log are told why.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start gateway
		want  int
	}{
		"NGINX":   {nginx, http.StatusServiceUnavailable},
		"HAProxy": {haproxy, http.StatusForbidden},
		"Caddy":   {caddy, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &setting{application: port(t), swap: []string{"100ms", "5s", "50ms", "5s"}}
			dir := t.TempDir()
			write(t, dir, "rules.yaml", "rules:\n"+window("plain", "GET /", "ip", 1000)+"}\n")
			s.pod = start(t, dir, "serve", "--rules", "file:rules.yaml", "--trusted-proxies", "192.0.2.0/24")
			addr := c.start(t, s)
			r, body := ask(t, addr, http.MethodGet, "/", "")
			if r.StatusCode != c.want || !strings.Contains(body, `"code":"forbidden"`) || r.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %v %s, want %d and the code forbidden", r.StatusCode, r.Header, body, c.want)
			}
			if said := s.said(); !strings.Contains(said, "peer=127.0.0.1") || !strings.Contains(said, "--trusted-proxies") {
				t.Errorf("the log names neither the gateway nor the flag:\n%s", said)
			}
		})
	}
}

// NGINX's own refusals stay what they are.
func TestNGINXDenies(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.swap = append(s.swap, "auth_request     /_tallygate;", "deny all; auth_request /_tallygate;")
	if r, body := ask(t, nginx(t, s), http.MethodGet, "/open", ""); r.StatusCode != http.StatusForbidden || s.reached.Load() != 0 {
		t.Errorf("%d %s, %d reached the application; want 403 and none", r.StatusCode, body, s.reached.Load())
	}
}

// TestPagesServe: each page's command starts a Tallygate that gateways may ask.
func TestPagesServe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nginx", "haproxy", "caddy", "traefik"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "routes.txt", "GET /v1/labels/{id}\n")
			write(t, dir, "rules.yaml", "rules:\n  - {id: labels, domain: public-api, match: {route: \"GET /v1/labels/{id}\"}, identity: [api_key], algorithm: sliding_log, limit: 1, window_s: 60}\n")
			p := start(t, dir, append(documented(t, "gateways/"+name+".md"), "--rules", "file:rules.yaml")...)
			for i, want := range []int{200, 429} {
				q := []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/labels/7", "X-Forwarded-For", "203.0.113.9", "X-Api-Key", "acct_1"}
				if r, body := askFrom(t, "127.0.0.1", p.http, http.MethodGet, "/v1/ratelimit:forward", "", q...); r.StatusCode != want {
					t.Errorf("request %d: %d %s, want %d", i+1, r.StatusCode, body, want)
				}
			}
		})
	}
}
