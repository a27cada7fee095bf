package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
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
			return nil, usagef("%s: %s: %s", v.where("jwt-keys-file"), path, strings.TrimPrefix(err.Error(), "jwt: "))
		}
		conf.Verifier = keys
	}
	a := &asker{}
	var err error
	if a.who, err = identity.NewResolver(conf); err != nil {
		return nil, usageError{err} // agreeOnIdentity and the settings have seen to it
	}
	if path := v.String("routes-file"); path != "" {
		templates, err := readTemplates(path)
		if err != nil {
			return nil, usagef("%s: %w", v.where("routes-file"), err)
		}
		a.route = templates.Route
	}
	return a, nil
}

// agreeOnIdentity refuses settings of who asks that contradict each other, or do nothing.
func (v *values) agreeOnIdentity() error {
	from, _ := parseSources(v.String("identity")) // checked by the setting
	for _, attr := range slices.Sorted(maps.Keys(from)) {
		switch kind, _, _ := strings.Cut(from[attr], ":"); {
		case kind == "claim" && v.String("jwt-keys-file") == "":
			return usagef("%s: %s=%s needs jwt-keys-file: a claim that nobody verifies is anybody's", v.where("identity"), attr, from[attr])
		case kind == "proxy-header" && v.String("trusted-proxies") == "" && v.Int("trusted-hops") == 0:
			return usagef("%s: %s=%s needs trusted-proxies or trusted-hops: no proxy is trusted", v.where("identity"), attr, from[attr])
		}
	}
	for _, name := range []string{"jwt-issuer", "jwt-audience"} {
		if v.String(name) != "" && v.String("jwt-keys-file") == "" {
			return usagef("%s: %q is asked of no token without jwt-keys-file, the keys that verify them", v.where(name), v.String(name))
		}
	}
	if v.String("trusted-proxies") != "" && v.Int("trusted-hops") > 0 {
		return usagef("trusted-proxies (%s) and trusted-hops (%s) say the same in two ways; set one: networks where they are known",
			v.origin["trusted-proxies"], v.origin["trusted-hops"])
	}
	return nil
}

// networks takes networks in CIDR form, by commas.
func networks(value string) error {
	_, err := parseNetworks(value)
	return err
}

func parseNetworks(value string) (list []netip.Prefix, err error) {
	for _, text := range commas(value) {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%.200q is no network such as 10.0.0.0/8; one address is 10.0.0.7/32", text)
		}
		list = append(list, network)
	}
	return list, nil
}

// sources takes attributes and where each comes from, by commas.
func sources(value string) error {
	_, err := parseSources(value)
	return err
}

func parseSources(value string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range commas(value) {
		name, from, ok := strings.Cut(text, "=")
		if _, twice := all[name]; !ok || name == "" || from == "" || twice {
			return nil, fmt.Errorf("%.200q is no attribute and its source, such as api_key=header:X-Api-Key, each attribute once", text)
		}
		if err := identity.CheckSource(name, from); err != nil {
			return nil, err
		}
		all[name] = from
	}
	if len(all) > identity.MaxSources {
		return nil, fmt.Errorf("%d attributes are more than %d; take those out that no rule names", len(all), identity.MaxSources)
	}
	return all, nil
}

// readTemplates reads a file of templates; empty lines and those that begin with # are
// passed over.
func readTemplates(path string) (*request.Templates, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []string
	var lines []int
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list, lines = append(list, line), append(lines, n)
		}
	}
	templates, err := request.NewTemplates(list)
	if wrong, ok := errors.AsType[*request.TemplateError](err); ok {
		return nil, fmt.Errorf("%s:%d: %.140q is no template such as GET /v1/labels/{id}, or contradicts another: %s", path, lines[wrong.Index], wrong.Template, wrong.Reason)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return templates, nil
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
