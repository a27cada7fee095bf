package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/tallygate/tallygate/rules"
)

// announce says on stdout where serve answers; on a first start also what to try.
func (m *Main) announce(v *values, d *doors, snapshot *rules.Snapshot, first bool, out io.Writer) {
	scheme := "http://"
	if v.String("http-cert-file") != "" {
		scheme = "https://"
	}
	base := scheme + reachable(d.httpListener.Addr())
	_, _ = fmt.Fprintf(out, "tallygate answers on %s (store %s, %s from %s)\n",
		base, maskURL(v.String("store")), count(len(snapshot.Rules()), "rule"), maskURL(v.String("rules")))
	if d.rlsListener != nil {
		_, _ = fmt.Fprintf(out, "Envoy's rate limit service on %s (gRPC)\n", d.rlsListener.Addr())
	}
	if !first {
		return
	}
	_, _ = fmt.Fprintf(out, "\nThere were no rules, so example rules are in %s now. tallygate rules list shows them, and what\n"+
		"tallygate rules apply FILE changes applies within a second. Try:\n\n", strings.TrimPrefix(v.String("rules"), sqliteScheme))
	for _, body := range examples(snapshot) {
		_, _ = fmt.Fprintf(out, "  curl -s %s/v1/ratelimit:check -d '%s'\n", base, body)
	}
}

// reachable is a listener's address as one can type it on this machine.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// examples returns the bodies of two checks that the rules in force answer: one
// names its rule, one lets the rules match.
func examples(snapshot *rules.Snapshot) []string {
	for _, c := range snapshot.Rules() {
		r := c.Rule()
		if c.Action() != rules.ActionLimit || len(r.Identity) != 1 || len(r.Match) == 0 || r.Identity[0] == "ip" {
			continue
		}
		const account = "acct_7Q2"
		attributes := map[string]string{r.Identity[0]: account, "ip": "203.0.113.9"}
		for name, pattern := range r.Match {
			attributes[name] = strings.ReplaceAll(pattern, "*", "x")
		}
		named := question{Domain: c.Domain(), Entries: []questionEntry{{Rule: c.ID(), Key: key{account}, Cost: 1}}}
		return []string{compact(named), compact(question{Domain: c.Domain(), Attributes: attributes})}
	}
	return nil
}

// compact is q as JSON that a shell takes in single quotes.
func compact(q question) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(q); err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "'", `\u0027`)
}
