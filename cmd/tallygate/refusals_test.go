package main_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// inFolder writes files into a folder of the test's and returns it.
func inFolder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

// A wrong value is refused before anything listens, in words of the one who wrote it: the
// flag, the value, what is allowed and what to do. Nobody is told of Go's types, of
// libraries, or of where in the program it was noticed.
func TestWrongValuesOfTheProxy(t *testing.T) {
	t.Parallel()
	secret, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var many []string
	for i := range 17 {
		many = append(many, "a"+strconv.Itoa(i)+"=query:x")
	}
	dir := inFolder(t, map[string]string{
		"rules": aRule, "junk": "junk", "long": strings.Repeat("a", 100_000),
		"string": `{"keys":"x"}`, "list": `[]`, "none": `{"keys":[]}`, "number": `{"keys":[7]}`, "oct": `{"keys":[{"kty":"oct","k":"AAAA"}]}`,
		"curve": `{"keys":[{"kty":"EC","kid":"a","crv":"P-9","x":"AA","y":"AA"}]}`, "base64": `{"keys":[{"kty":"RSA","kid":"b","n":"%","e":"AQAB"}]}`,
		"pem":     string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(secret)})),
		"brace":   "# routes\n\nGET /a\nGET /a/{\n",
		"twice":   "GET /a/{x}\nGET /a/{y}\n",
		"no path": "FETCH\n",
		"many":    strings.Repeat("GET /a\n", 1001),
	})
	const kinds = "is not header:NAME, proxy-header:NAME, cookie:NAME, query:NAME, claim:NAME, tls:cn, tls:san or constant:TEXT"
	for _, tt := range []struct {
		args string // by blanks; DIR is the folder, _ a blank
		want string
	}{
		{"--identity x", `--identity: "x" is no attribute and its source, such as api_key=header:X-Api-Key, each attribute once`},
		{"--identity x=query:a,x=query:b", `--identity: "x=query:b" is no attribute and its source, such as api_key=header:X-Api-Key, each attribute once`},
		{"--identity x=body:y", `--identity: source "body:y" of x ` + kinds},
		{"--identity x=header:", `--identity: source "header:" of x ` + kinds + " of 1 to 128 bytes"},
		{"--identity x=header:a_b", `--identity: source "header:a b" of x: ' ' stands in no header's name`},
		{"--identity ip=header:X", "--identity: attribute ip has no source: the address comes from the socket and from trusted proxies, the route from the router"},
		{"--identity x=header:Cookie", `--identity: source "header:Cookie" of x holds all cookies; name one: cookie:NAME`},
		{"--identity x=header:Host", `--identity: source "header:Host" of x is no header of a request here; match by route`},
		{"--identity x=header:Forwarded", `--identity: source "header:Forwarded" of x: a client may write this header; name the trusted proxies and count by ip`},
		{"--identity x=tls:ou", `--identity: source "tls:ou" of x is neither tls:cn nor tls:san`},
		{"--identity x=tls:cn", "--identity: x=tls:cn needs listen-client-ca-file: clients are asked for no certificate without"},
		{"--identity x=claim:sub", "--identity: x=claim:sub needs jwt-keys-file: a claim that nobody verifies is anybody's"},
		{"--identity x=proxy-header:Y", "--identity: x=proxy-header:Y needs trusted-proxies or trusted-hops: no proxy is trusted"},
		{"--identity " + strings.Join(many, ","), "--identity: 17 attributes are more than 16; take those out that no rule names"},
		{"--identity " + strings.Repeat("a", 129) + "=query:x", `has 129 bytes, not 1 to 128`},
		{"--trusted-proxies 10.0.0.1", `--trusted-proxies: "10.0.0.1" is no network such as 10.0.0.0/8; one address is 10.0.0.7/32`},
		{"--trusted-proxies 10.0.0.0/33", `--trusted-proxies: "10.0.0.0/33" is no network such as 10.0.0.0/8; one address is 10.0.0.7/32`},
		{"--trusted-proxies 10.0.0.0/8 --trusted-hops 1", "trusted-proxies (--trusted-proxies) and trusted-hops (--trusted-hops) say the same in two ways; set one: networks where they are known"},
		{"--trusted-hops 17", `--trusted-hops: "17" is no whole number from 0 to 16`},
		{"--forwarding-header Via", `--forwarding-header: "Via" is none of X-Forwarded-For, Forwarded`},
		{"--jwt-issuer a", `--jwt-issuer: "a" is asked of no token without jwt-keys-file, the keys that verify them`},
		{"--jwt-audience b", `--jwt-audience: "b" is asked of no token without jwt-keys-file, the keys that verify them`},
		{"--jwt-keys-file DIR/away", "--jwt-keys-file: DIR/away: stat DIR/away: no such file or directory"},
		{"--jwt-keys-file DIR/junk", `--jwt-keys-file: DIR/junk: the key set is not JSON like {"keys":[…]} (RFC 7517): invalid character 'j' looking for beginning of value at byte 1`},
		{"--jwt-keys-file DIR/pem", `--jwt-keys-file: DIR/pem: the key set is not JSON like {"keys":[…]} (RFC 7517): invalid character '-' in numeric literal at byte 2`},
		{"--jwt-keys-file DIR/string", `--jwt-keys-file: DIR/string: the key set is not JSON like {"keys":[…]} (RFC 7517): there is a wrong string at byte 11`},
		{"--jwt-keys-file DIR/list", `--jwt-keys-file: DIR/list: the key set is not JSON like {"keys":[…]} (RFC 7517): there is a wrong array at byte 1`},
		{"--jwt-keys-file DIR/none", "--jwt-keys-file: DIR/none: none of the 0 keys of the key set verifies signatures: it takes one of kty RSA, EC or OKP whose use is not enc"},
		{"--jwt-keys-file DIR/oct", "--jwt-keys-file: DIR/oct: none of the 1 keys of the key set verifies signatures: it takes one of kty RSA, EC or OKP whose use is not enc"},
		{"--jwt-keys-file DIR/number", "--jwt-keys-file: DIR/number: keys/0 of the key set: not a key: there is a wrong number at byte 1"},
		{"--jwt-keys-file DIR/curve", `--jwt-keys-file: DIR/curve: keys/0 of the key set: key "a" of kty EC cannot be used: unsupported key type, format, curve, or RSA modulus size`},
		{"--jwt-keys-file DIR/base64", `--jwt-keys-file: DIR/base64: keys/0 of the key set: key "b" of kty RSA cannot be used: illegal base64 data at input byte 0`},
		{"--routes-file DIR/away", "--routes-file: open DIR/away: no such file or directory"},
		{"--routes-file DIR", "--routes-file: read DIR: is a directory"},
		{"--routes-file DIR/brace", `--routes-file: DIR/brace:4: "GET /a/{" is no template such as GET /v1/labels/{id}, or contradicts another: at offset 7: bad wildcard segment (must end with '}')`},
		{"--routes-file DIR/twice", `--routes-file: DIR/twice:2: "GET /a/{y}" is no template such as GET /v1/labels/{id}, or contradicts another: conflicts with template "GET /a/{x}": GET /a/{y} matches the same requests as GET /a/{x}`},
		{"--routes-file DIR/no_path", `--routes-file: DIR/no path:1: "FETCH" is no template such as GET /v1/labels/{id}, or contradicts another: at offset 0: host/path missing /`},
		{"--routes-file DIR/long", `--routes-file: DIR/long:1: "aaaaaaaaaa`},
		{"--routes-file DIR/many", "--routes-file: DIR/many: routes: 1001 templates are above 1000; join some with a {wildcard}"},
		{"--domain a_b", `--domain: "a b" is no domain of rules: 1 to 128 of A-Z a-z 0-9 . _ -`},
		{"--upstream ", "--upstream (TALLYGATE_UPSTREAM) is required: where requests go, such as http://127.0.0.1:3000"},
		{"--upstream x", `--upstream: "x" has a scheme "" that is none of http, https and h2c; write http://HOST:PORT`},
		{"--upstream localhost:3000", `--upstream: "localhost:3000" has a scheme "localhost" that is none of http, https and h2c; write http://HOST:PORT`},
		{"--upstream http://[::1", `--upstream: "http://[::1" is no URL such as http://127.0.0.1:3000`},
		{"--upstream http://:80", `--upstream: "http://:80" names no host; write http://HOST:PORT`},
		{"--upstream http://x:0", `--upstream: "http://x:0" has a port "0" that is not within 1 and 65535`},
		{"--upstream http://u:secret@x", `--upstream: "http://u:xxxxx@x" has a user, query or fragment, which no request would carry; remove it`},
		{"--upstream-ca-file DIR/away", "--upstream-ca-file: stat DIR/away: no such file or directory"},
		{"--upstream-ca-file DIR/junk", "--upstream-ca-file: authorities DIR/junk: there is no certificate in it; it must be PEM"},
		{"--upstream-latency-target 5", `--upstream-latency-target: "5" is no time from 0s to 1h0m0s, such as 5ms`},
		{"--preserve-host=maybe", `invalid argument "maybe" for "--preserve-host" flag: it takes true or false; see tallygate proxy --help`},
		{"--cost 0", `--cost: "0" is no whole number from 1 to 1000000000`},
		{"--cost 1e9", `--cost: "1e9" is no whole number from 1 to 1000000000`},
		{"--cost-header X_Cost", `--cost-header: "X Cost" is no header's name: ' ' stands in none; write it as the upstream does, such as X-Tokens`},
		{"--cost-header retry-after", `--cost-header: "retry-after" says something else, and clients need it; take one of the upstream's own, such as X-Tokens`},
		{"--listen x", `--listen: "x" is no address such as :8080 or 127.0.0.1:8080`},
		{"--listen-cert-file DIR/junk", "listen-cert-file and listen-key-file go together: a certificate and its key; name both or none"},
		{"--listen-cert-file DIR/junk --listen-key-file DIR/junk", "listen-cert-file, listen-key-file and listen-client-ca-file: certificate DIR/junk with key DIR/junk: failed to find any PEM data in certificate input"},
		{"--listen-client-ca-file DIR/junk", "listen-client-ca-file needs listen-cert-file: certificates are shown over TLS only"},
		{"--drain 5", `--drain: "5" is no time from 0s to 10m0s, such as 5ms`},
	} {
		t.Run(tt.args[:min(60, len(tt.args))], func(t *testing.T) {
			t.Parallel()
			args := []string{"proxy", "--listen", "127.0.0.1:0", "--admin", "", "--rules", "file:" + filepath.Join(dir, "rules"), "--upstream", "http://127.0.0.1:1"}
			for arg := range strings.SplitSeq(tt.args, " ") {
				args = append(args, strings.ReplaceAll(strings.ReplaceAll(arg, "_", " "), "DIR", dir))
			}
			code, _, stderr := run(t, nil, args...)
			lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(stderr, dir, "DIR")), "\n")
			last := strings.TrimPrefix(lines[len(lines)-1], "tallygate: ")
			if code != 2 || !strings.Contains(last, tt.want) {
				t.Errorf("exit %d: %s\nwant 2: %s", code, last, tt.want)
			}
			leaks := []string{"jose", "json.", "struct {", ".go:", "bufio", "strconv", "tls: ", "jwt: ", "identity: S", "proxy: ", "Config", "secret"}
			if i := slices.IndexFunc(leaks, func(leak string) bool { return strings.Contains(last, leak) }); i >= 0 {
				t.Errorf("%q is nobody's word but ours: %s", leaks[i], last)
			}
		})
	}
}
