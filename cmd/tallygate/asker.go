package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/jwt"
	"github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/internal/newest"
)

// asker tells who asks and for which route, where requests of clients are seen: by the
// proxy, and for gateways that ask about theirs.
type asker struct {
	who   *identity.Resolver
	route func(r *http.Request) string // nil where there are no templates
}

// newAsker makes it of the settings.
func newAsker(v *values, log *slog.Logger) (*asker, error) {
	trusted, _ := parseNetworks(v.String("trusted-proxies")) // checked by the setting
	from, _ := parseSources(v.String("identity"))
	conf := identity.Config{
		TrustedProxies: trusted,
		Hops:           v.Int("trusted-hops"),
		Forwarding:     v.String("forwarding-header"),
		Sources:        from,
	}
	if path := v.String("jwt-keys-file"); path != "" {
		keys, err := openKeys(v, path, log)
		if err != nil {
			return nil, fmt.Errorf("jwt-keys-file: %w", err)
		}
		conf.Verifier = keys
	}
	a := &asker{}
	var err error
	if a.who, err = identity.NewResolver(conf); err != nil {
		return nil, usageError{err}
	}
	if path := v.String("routes-file"); path != "" {
		templates, err := readTemplates(path)
		if err != nil {
			return nil, fmt.Errorf("routes-file: %w", err)
		}
		a.route = templates.Route
	}
	return a, nil
}

// readTemplates reads a file of templates; empty lines and those that begin with # are
// passed over.
func readTemplates(path string) (*request.Templates, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var list []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return request.NewTemplates(list)
}

// keySet verifies tokens by the newest key set of a file.
type keySet struct{ set *newest.Value[*jwt.Verifier] }

// Claims implements identity.Verifier.
func (k keySet) Claims(token string) (map[string]string, bool) { return k.set.Get().Claims(token) }

func openKeys(v *values, path string, log *slog.Logger) (keySet, error) {
	set, err := newest.New(newest.Config[*jwt.Verifier]{Files: []string{path}, Log: log, Load: func() (*jwt.Verifier, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return jwt.New(jwt.Config{Keys: text, Issuer: v.String("jwt-issuer"), Audience: v.String("jwt-audience")})
	}})
	return keySet{set}, err
}
