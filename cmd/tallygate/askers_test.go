package main_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin/token"
)

// Checks are of all domains: a token of one domain may not ask for any.
func TestTokens_whoMayAsk(t *testing.T) {
	t.Parallel()
	asker, askers := token.New()
	bound, bounds := token.New()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens:\n  - {name: a, role: check, sha256: "+askers+"}\n  - {name: b, role: admin, domain: d, sha256: "+bounds+"}\n")
	s := serve(t, aRule, "--tokens-file", path, "--http-token-required")
	for _, tt := range []struct {
		name, token string
		want        int
	}{
		{"a check token", asker, http.StatusOK},
		{"an admin of one domain", bound, http.StatusUnauthorized},
	} {
		for _, at := range []string{"/v1/ratelimit:check", "/v1/ratelimit:reserve"} {
			body := strings.NewReader(`{"entries":[{"rule":"a","key":"203.0.113.9"}]}`)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+at, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+tt.token)
			answer, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != tt.want {
				t.Errorf("%s at %s: %d, want %d", tt.name, at, answer.StatusCode, tt.want)
			}
		}
	}
}
