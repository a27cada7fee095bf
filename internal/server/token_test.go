package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/server"
)

// Where checks need a token, nobody without one learns anything, and health does
// not need it.
func TestCheckNeedsToken(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{Limiter: newLimiter(t, newClock(), nil), Authorize: func(token string) bool { return token == "tg_good" }})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, header string
		want         int
		twice        bool
	}{
		{"none", "", 401, false},
		{"wrong", "Bearer tg_bad", 401, false},
		{"another scheme", "Basic tg_good", 401, false},
		{"empty", "Bearer ", 401, false},
		{"good", "Bearer tg_good", 200, false},
		{"good, in another spelling", "bearer  tg_good ", 200, false},
		{"good, twice", "Bearer tg_good", 401, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, checkPath, strings.NewReader(`{"checks":[]}`))
			if tc.header != "" {
				r.Header.Set("Authorization", tc.header)
			}
			if tc.twice { // whoever reads the other line would see another caller
				r.Header.Add("Authorization", tc.header)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if got := w.Code; tc.want == 401 && (got != 401 || w.Header().Get("WWW-Authenticate") != "Bearer") || tc.want == 200 && got == 401 {
				t.Errorf("got %d %s", got, w.Body)
			}
			if strings.Contains(w.Body.String(), "tg_bad") {
				t.Error("the answer has the token in it")
			}
		})
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if w.Code != 200 {
		t.Errorf("/healthz: %d", w.Code)
	}
}
