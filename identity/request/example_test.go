package request_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
)

// A request through a proxy of 10.0.0.0/8, as a Resolver sees it.
func ExampleOf() {
	resolver, err := identity.NewResolver(identity.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Sources:        map[string]string{"api_key": "header:X-Api-Key"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest(http.MethodGet, "/v1/labels/5", nil)
	r.RemoteAddr = "10.0.0.7:40001"
	r.Header.Set("X-Forwarded-For", "192.0.2.77, 203.0.113.9") // the client wrote the first
	r.Header.Set("X-Api-Key", "acct_7Q2")

	facts, attrs := request.Of(r), map[string]string{}
	err = resolver.Resolve(&facts, attrs)
	fmt.Println(attrs["ip"], attrs["api_key"], err)
	// Output: 203.0.113.9 acct_7Q2 <nil>
}

// However a path is spelt, it has one route.
func ExampleTemplates() {
	templates, err := request.NewTemplates([]string{"GET /v1/labels/{id}", "/v1/files/{path...}"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"/v1/labels/5", "/v1//%6Cabels/./5/", "/v1/files/a/b", "/nowhere"} {
		fmt.Println(templates.Route(httptest.NewRequest(http.MethodGet, path, nil)))
	}
	// Output:
	// GET /v1/labels/{id}
	// GET /v1/labels/{id}
	// GET /v1/files/{path...}
	// other
}
