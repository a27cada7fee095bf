package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// labels is a limiter with one rule: two labels a minute for each key.
func labels() *tallygate.Limiter {
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{{
		ID: "labels", Match: map[string]string{"route": "GET /v1/labels/{id}"}, Identity: []string{"api_key"},
		Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: 2, WindowS: 60},
	}}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		panic(err)
	}
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		panic(err)
	}
	return limiter
}

func label(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// show asks for three labels and prints the answers.
func show(h http.Handler) {
	for _, path := range []string{"/v1/labels/1", "/v1/labels/2", "/v1/labels/3"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("X-Api-Key", "acct_7Q2")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(path, w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
}

// In front of a mux the routes are those of the mux.
func ExampleHandler() {
	limiter := labels()
	defer func() { _ = limiter.Close() }()
	resolver, err := identity.NewResolver(identity.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Sources:        map[string]string{"api_key": "header:X-Api-Key"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/labels/{id}", label)

	limit := httplimit.Handler(httplimit.Config{Limiter: limiter, Identity: resolver})
	show(limit(mux)) // http.ListenAndServe(":8080", limit(mux))
	// Output:
	// /v1/labels/1 204 1
	// /v1/labels/2 204 0
	// /v1/labels/3 429 0
}

// In chi a middleware knows the route where it stands behind the router: in With, or
// in Use of a Group.
func ExampleHandler_chi() {
	limiter := labels()
	defer func() { _ = limiter.Close() }()
	resolver, err := identity.NewResolver(identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	router := chi.NewRouter()
	router.Group(func(r chi.Router) {
		r.Use(httplimit.Handler(httplimit.Config{Limiter: limiter, Identity: resolver}))
		r.Get("/v1/labels/{id}", label)
	})
	show(router)
	// Output:
	// /v1/labels/1 204 1
	// /v1/labels/2 204 0
	// /v1/labels/3 429 0
}

// A proxy has no router: it is told the templates. The answer to a denial may be
// one's own.
func ExampleHandler_templates() {
	limiter := labels()
	defer func() { _ = limiter.Close() }()
	resolver, err := identity.NewResolver(identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	templates, err := request.NewTemplates([]string{"GET /v1/labels/{id}"})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit := httplimit.Handler(httplimit.Config{
		Limiter: limiter, Identity: resolver, Route: templates.Route,
		OnDeny: func(w http.ResponseWriter, _ *http.Request, v *tallygate.Verdict) {
			fmt.Println("denied by", v.DeniedBy)
			http.Error(w, "later, please", http.StatusServiceUnavailable)
		},
	})
	show(limit(http.HandlerFunc(label)))
	// Output:
	// /v1/labels/1 204 1
	// /v1/labels/2 204 0
	// denied by labels
	// /v1/labels/3 503 0
}
