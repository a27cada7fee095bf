package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/proxy"
	"github.com/tallygate/tallygate/rules"
)

// setting is one thing that can be set: by flag --name, by environment
// TALLYGATE_NAME, by key name in the file, dashes as underscores there.
type setting struct {
	name, fallback, help string
	// valid refuses a wrong value; nil takes all.
	valid func(value string) error
	// words are the values there are, for a setting that is one of few.
	words []string
	// secret values are shown masked, and are no flag: other users of the machine
	// can read a command line. Each has a sibling name-file.
	secret bool
	// flag are the commands that have it as a flag.
	flag commands
	// toggle is a flag that needs no value.
	toggle bool
}

// commands is a set of those that take settings as flags.
type commands uint16

const (
	serving     commands = 1 << iota
	controlling          // the control plane alone
	checking
	looking   // at the store
	governing // rules list, apply and the like
	operating // through the control plane: pods, usage and the like
	importing // rules of other systems
	proxying  // in front of an upstream

	// answering are those that answer, calling those that call the control plane.
	answering = deciding | controlling
	calling   = deciding | governing | operating
	deciding  = serving | proxying

	nowhere commands = 0
)

// settings returns all of them, in the order shown.
func settings() []setting {
	return slices.Concat(portSettings(), ruleSettings(), storeSettings(), askerSettings(), answerSettings())
}

// portSettings are where it listens, and who may ask.
func portSettings() []setting {
	return []setting{
		{name: "http", fallback: ":8080", flag: serving, valid: address, help: "address of the check API and health"},
		{name: "http-cert-file", flag: serving, help: "certificate of the check API (PEM), read again when it changes; without one it is plain HTTP"},
		{name: "http-key-file", flag: serving, help: "key of that certificate (PEM)"},
		{name: "http-client-ca-file", flag: serving, help: "authorities whose certificates clients of the check API must show (PEM)"},
		{name: "http-token-required", fallback: "false", flag: serving, valid: truth, toggle: true, help: "answer checks only with a token of role check or admin of tokens-file"},
		{name: "listen", fallback: ":8000", flag: proxying, valid: address, help: "address on which the proxy takes requests"},
		{name: "listen-cert-file", flag: proxying, help: "certificate of the proxy (PEM), read again when it changes; without one it is plain HTTP"},
		{name: "listen-key-file", flag: proxying, help: "key of that certificate (PEM)"},
		{name: "listen-client-ca-file", flag: proxying, help: "authorities whose certificates clients of the proxy must show (PEM)"},
		{name: "grpc", fallback: ":8081", flag: serving, valid: addressOrSocket, help: "address of Envoy's rate limit service (gRPC), or unix:PATH; empty for none"},
		{name: "grpc-cert-file", flag: serving, help: "certificate of the gRPC port (PEM), read again when it changes"},
		{name: "grpc-key-file", flag: serving, help: "key of that certificate (PEM)"},
		{name: "grpc-client-ca-file", flag: serving, help: "authorities whose certificates clients of the gRPC port must show (PEM)"},
		{name: "grpc-reflection", fallback: "false", flag: serving, valid: truth, toggle: true, help: "let gRPC clients ask which services there are"},
		{name: "rls-per-descriptor", fallback: "false", flag: serving, valid: truth, toggle: true, help: "decide and charge each descriptor by itself, instead of all or none of a request"},
		{name: "rls-count-denied", fallback: "false", flag: serving, valid: truth, toggle: true, help: "count every hit, also of denied requests, as envoyproxy/ratelimit does; each request then asks the store"},
		{name: "rls-error-on-failure", fallback: "false", flag: serving, valid: truth, toggle: true, help: "answer UNAVAILABLE, not OVER_LIMIT, where a rule that fails closed had no answer of the store"},
		{name: "rls-headers", fallback: "false", flag: serving, valid: truth, toggle: true, help: "add response headers of ours; Envoy can make its own"},
		{name: "rls-body", fallback: "false", flag: serving, valid: truth, toggle: true, help: "add a problem document as the body of denied requests"},
		{name: "rls-metadata", fallback: "false", flag: serving, valid: truth, toggle: true, help: "add dynamic metadata that says which rule denied"},
		{name: "admin", fallback: "127.0.0.1:8090", flag: answering, valid: addressOrNone, help: "address of the admin API and /metrics; without tokens-file on this machine only; empty for none"},
		{name: "admin-cert-file", flag: answering, help: "certificate of the admin port (PEM), read again when it changes"},
		{name: "admin-key-file", flag: answering, help: "key of that certificate (PEM)"},
		{name: "admin-client-ca-file", flag: answering, help: "authorities whose certificates clients of the admin port must show (PEM)"},
		{name: "tokens-file", flag: answering, help: "file of tokens and what each may do (tallygate token new), read again when it changes"},
	}
}

// ruleSettings are where the rules are.
func ruleSettings() []setting {
	return []setting{
		{name: "rules", fallback: "sqlite:tallygate.db", flag: answering | looking | governing, valid: rulesURL, help: "where the rules are: sqlite:PATH, postgres://user@host/database, file:PATH, envoy:DIR, https://control-plane"},
		{name: "envoy-algorithm", fallback: "fixed_window", flag: deciding | importing, words: []string{"fixed_window", "sliding_window", "token_bucket"}, help: "how limits of envoyproxy/ratelimit's configuration count"},
		{name: "envoy-merge-domains", fallback: "false", flag: deciding | importing, valid: truth, toggle: true, help: "let several of its files add to one domain, as MERGE_DOMAIN_CONFIG does"},
		{name: "envoy-calendar-windows", fallback: "false", flag: deciding | importing, valid: truth, toggle: true, help: "make its weeks and months those of the calendar, not 7 and 30 days"},
		{name: "envoy-quota-shadow", fallback: "false", flag: deciding | importing, valid: truth, toggle: true, help: "never enforce its limits with quota_mode"},
		{name: "envoy-domain", flag: deciding | importing, help: "take this domain of its files only"},
		{name: "snapshot-file", fallback: "tallygate-snapshot.json", flag: deciding, help: "where the last good rules of postgres:// or https:// are kept, to start without them; empty for nowhere"},
		{name: "control", fallback: "http://127.0.0.1:8090", flag: operating, valid: httpURL, help: "base URL of the control plane, or of the admin port of a server"},
		{name: "token", secret: true, flag: nowhere, help: "token to show the control plane, or the server of check"},
		{name: "token-file", flag: calling | checking, help: "file with the token to show the control plane, or the server of check"},
		{name: "control-ca-file", flag: calling | checking, help: "certificates to trust at the control plane (PEM)"},
		{name: "control-cert-file", flag: calling | checking, help: "own certificate for the control plane (PEM)"},
		{name: "control-key-file", flag: calling | checking, help: "key of the own certificate (PEM)"},
	}
}

// storeSettings are where the counts are, and how keys are named there.
func storeSettings() []setting {
	return []setting{
		{name: "pod-id", flag: deciding, valid: atMostBytes(256), help: "name of this pod, in logs and among those that share the store (default the host's name and a random suffix)"},
		{name: "pods", fallback: "0", flag: deciding, valid: wholeWithin(0, 1e5), help: "how many pods share the store; 0 counts those that live"},
		{name: "store", fallback: "memory", flag: answering | looking, valid: storeURL, help: "where the counts are: memory, redis://h1:p,h2:p, rediss://…, redis+sentinel://h1,h2/master"},
		{name: "store-deadline", fallback: "5ms", flag: answering | looking, valid: durationWithin(time.Millisecond, 10*time.Second), help: "how long one check may wait for the store; of control 1s where it is not set"},
		{name: "breaker-failures", fallback: "3", flag: deciding, valid: wholeWithin(1, 100), help: "after how many failed calls in a row a shard of the store is not asked any more"},
		{name: "breaker-within", fallback: "0s", flag: deciding, valid: durationWithin(0, 10*time.Minute), help: "count failures within this time, successes between or not; 0 counts those in a row"},
		{name: "probe-every", fallback: "1s", flag: deciding, valid: durationWithin(100*time.Millisecond, 10*time.Minute), help: "how often one call finds out whether a shard that is not asked is back"},
		{name: "failover-hold", fallback: "2s", flag: deciding, valid: durationWithin(time.Millisecond, time.Hour), help: "how long closed rules deny after a failover that lost spends"},
		{name: "empty-hold", fallback: "1m", flag: deciding, valid: durationWithin(time.Millisecond, time.Hour), help: "how long at most a shard that lost all its keys is not believed"},
		{name: "store-username", flag: answering | looking, help: "user name at the store"},
		{name: "store-password", secret: true, flag: nowhere, help: "password at the store"},
		{name: "store-password-file", flag: answering | looking, help: "file with the password at the store"},
		{name: "store-ca-file", flag: answering | looking, help: "certificates to trust at the store (PEM)"},
		{name: "store-cert-file", flag: answering | looking, help: "own certificate for the store (PEM)"},
		{name: "store-key-file", flag: answering | looking, help: "key of the own certificate (PEM)"},
		{name: "max-buckets", fallback: "1000000", flag: deciding, valid: wholeWithin(1, 1e9), help: "most buckets the memory store holds"},
		{name: "plain-identities", fallback: "false", flag: answering | looking, valid: truth, toggle: true, help: "keys are account ids, not secrets: store and log them as they are"},
		{name: "key-hash", secret: true, flag: nowhere, help: "secret that keys are hashed with; the same on all pods"},
		{name: "key-hash-file", flag: answering | looking, help: "file with the secret that keys are hashed with"},
	}
}

// askerSettings are who asks, and the proxy's upstream.
func askerSettings() []setting {
	return []setting{
		{name: "upstream", flag: proxying, valid: upstreamURL, help: "where the proxy sends requests: http://host:port, https://… or h2c://…"},
		{name: "upstream-ca-file", flag: proxying, help: "certificates to trust at the upstream (PEM)"},
		{name: "upstream-latency-target", fallback: "0s", flag: proxying, valid: durationWithin(0, time.Hour), help: "95th percentile of the upstream's latency above which rules with a shed_floor give way; 0 looks at 503 and 429 only"},
		{name: "preserve-host", fallback: "false", flag: proxying, valid: truth, toggle: true, help: "send the client's Host to the upstream"},
		{name: "cost", fallback: "1", flag: proxying, valid: wholeWithin(1, 1e9), help: "tokens a request spends, or is estimated to with cost-header"},
		{name: "cost-header", flag: proxying, valid: proxy.CheckCostHeader, help: "header of the upstream's answer that tells what the request cost"},
		{name: "trusted-proxies", flag: deciding, valid: networks, help: "networks of the proxies and gateways in front whose word about clients is believed, such as 10.0.0.0/8,fd00::/8"},
		{name: "trusted-hops", fallback: "0", flag: deciding, valid: wholeWithin(0, 16), help: "how many proxies are in front, where their networks are not known"},
		{name: "forwarding-header", fallback: "X-Forwarded-For", flag: deciding, words: []string{"X-Forwarded-For", "Forwarded"}, help: "the header in which those proxies tell the client's address: X-Forwarded-For or Forwarded"},
		{name: "identity", flag: deciding, valid: sources, help: "where attributes of a request come from: api_key=header:X-Api-Key,user=claim:sub"},
		{name: "routes-file", flag: deciding, help: "file of route templates, one a line, such as GET /v1/labels/{id}"},
		{name: "domain", flag: deciding, valid: domainName, help: "domain of the rules for requests that gateways ask about, and of the proxy (default: default, or where that has no rule the only one there is)"},
		{name: "jwt-keys-file", flag: deciding, help: "key set (JWKS) that bearer tokens are verified with, for identity claim:…; read again when it changes"},
		{name: "jwt-issuer", flag: deciding, help: "issuer that bearer tokens must name"},
		{name: "jwt-audience", flag: deciding, help: "audience that bearer tokens must name"},
	}
}

// answerSettings are how it answers.
func answerSettings() []setting {
	return []setting{
		{name: "max-inflight", fallback: "4096", flag: serving, valid: wholeWithin(1, 1e6), help: "most checks under way; more get 503"},
		{name: "drain", fallback: "0s", flag: deciding, valid: durationWithin(0, 10*time.Minute), help: "how long to go on answering, not ready, before stopping"},
		{name: "reset-style", fallback: "epoch", flag: deciding, words: []string{"epoch", "seconds"}, help: "X-RateLimit-Reset as epoch or seconds"},
		{name: "ietf-headers", fallback: "draft-11", flag: deciding, words: []string{"draft-11", "off"}, help: "RateLimit fields: draft-11 or off"},
		{name: "retry-jitter", fallback: "0", flag: deciding, valid: jitter, help: "spread Retry-After by up to this part of it, 0 to 0.1, later only"},
		{name: "log-level", fallback: "info", flag: answering, words: []string{"debug", "info", "warn", "error"}, help: "debug, info, warn or error"},
		{name: "log-format", fallback: "text", flag: answering, words: []string{"text", "json"}, help: "text or json"},
		{name: "server", fallback: "http://127.0.0.1:8080", flag: checking, valid: httpURL, help: "base URL of the server to ask"},
	}
}

// variable is the setting's name in the environment, key its name in the file.
func (s *setting) variable() string { return envPrefix + strings.ToUpper(s.key()) }
func (s *setting) key() string      { return strings.ReplaceAll(s.name, "-", "_") }

func address(value string) error {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("%q is no address such as :8080 or 127.0.0.1:8080", value)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q has no port from 0 to 65535", value)
	}
	return nil
}

// domainName takes what a rule's domain can be, or none for the default: any other has
// no rule, and all would pass.
func domainName(value string) error {
	other := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c))
	}
	if len(value) > rules.MaxIDBytes || strings.ContainsFunc(value, other) {
		return fmt.Errorf("%q is no domain of rules: 1 to %d of A-Z a-z 0-9 . _ -", value, rules.MaxIDBytes)
	}
	return nil
}

// commas splits a list; an empty text is an empty list.
func commas(value string) (list []string) {
	for text := range strings.SplitSeq(value, ",") {
		if text = strings.TrimSpace(text); text != "" {
			list = append(list, text)
		}
	}
	return list
}

// addressOrNone takes an address, or none.
func addressOrNone(value string) error {
	if value == "" {
		return nil
	}
	return address(value)
}

// loopback reports whether an address is of this machine alone, as it is written.
func loopback(value string) bool {
	host, _, _ := net.SplitHostPort(value)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func storeURL(value string) error {
	if value == "memory" {
		return nil
	}
	for _, scheme := range []string{"redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://"} {
		if rest, ok := strings.CutPrefix(value, scheme); ok && rest != "" {
			return nil
		}
	}
	return fmt.Errorf("%q is none of memory, redis://…, rediss://…, redis+sentinel://…", maskURL(value))
}

func httpURL(value string) error {
	for _, scheme := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(value, scheme); ok && rest != "" {
			return nil
		}
	}
	return fmt.Errorf("%q is no URL such as http://127.0.0.1:8080", value)
}

func truth(value string) error {
	if _, err := strconv.ParseBool(value); err != nil {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return nil
}

func jitter(value string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f >= 0 && f <= headers.MaxJitter) { // NaN is in no range
		return fmt.Errorf("%q is no part from 0 to %v", value, headers.MaxJitter)
	}
	return nil
}

func atMostBytes(most int) func(string) error {
	return func(value string) error {
		if len(value) > most {
			return fmt.Errorf("%d bytes are more than %d", len(value), most)
		}
		return nil
	}
}

func wholeWithin(low, high int64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is no whole number from %d to %d", value, low, high)
		}
		return nil
	}
}

func durationWithin(low, high time.Duration) func(string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < low || d > high {
			return fmt.Errorf("%q is no time from %s to %s, such as 5ms", value, low, high)
		}
		return nil
	}
}

func oneOf(words ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("%q is none of %s", value, strings.Join(words, ", "))
		}
		return nil
	}
}
