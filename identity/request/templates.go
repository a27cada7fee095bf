package request

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
)

// Bounds of templates.
const (
	// MaxTemplates bounds a list: as many routes as metrics tell apart.
	MaxTemplates = 1_000
	// maxPath bounds the path that is matched; a longer one is [Other].
	maxPath = 8 << 10
)

// Templates finds the route of a request that no router has seen, such as in a
// proxy. Create it with [NewTemplates]; it is immutable and may be used by any
// number of goroutines.
type Templates struct {
	mux *http.ServeMux
	// probes are requests as the mux is asked about them, used again.
	probes sync.Pool
}

// TemplateError says which template of a list is wrong, and why.
type TemplateError struct {
	// Index is its place in the list, from 0.
	Index            int
	Template, Reason string
}

// Error implements error.
func (e *TemplateError) Error() string {
	return fmt.Sprintf("routes/%d: template %.140q: %s", e.Index, e.Template, e.Reason)
}

// NewTemplates compiles routes as net/http's ServeMux writes them, such as
//
//	GET /v1/labels/{id}
//	POST /login
//	/v1/files/{path...}
//
// The most specific one that matches is the route. An error is a [TemplateError] of the
// first one that is malformed or contradicts another one, or says that there are too many.
// Without a method it is for all of them.
func NewTemplates(list []string) (*Templates, error) {
	if len(list) > MaxTemplates {
		return nil, fmt.Errorf("routes: %d templates are above %d; join some with a {wildcard}", len(list), MaxTemplates)
	}
	t := &Templates{mux: http.NewServeMux()}
	t.probes.New = func() any { return &http.Request{URL: &url.URL{}} }
	for i, text := range list {
		if reason := register(t.mux, text); reason != "" {
			return nil, &TemplateError{Index: i, Template: text, Reason: reason}
		}
	}
	return t, nil
}

// register adds a pattern, or says why it is none. A ServeMux reports that by panic.
func register(mux *http.ServeMux, pattern string) (reason string) {
	defer func() {
		if p := recover(); p != nil {
			reason = reasonOf(pattern, fmt.Sprint(p))
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return ""
}

// reasonOf takes out of what a ServeMux says the pattern, which is named anyway, and where
// in this program it was registered.
func reasonOf(pattern, text string) string {
	text = strings.TrimPrefix(text, fmt.Sprintf("parsing %q: ", pattern))
	if m := conflict().FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("conflicts with template %s: %s", m[1], m[2])
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// conflict finds what two patterns have in common.
func conflict() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^pattern .* \(registered at [^)]*\) conflicts with pattern (".*") \(registered at [^)]*\):\n(.*)$`)
}

// Route returns the template of a request as [Route] writes it, or [Other].
//
// How the path is spelt does not matter: doubled slashes, dot segments, escaped
// letters and a slash at the end are taken out first. An escaped slash is part of
// its segment; where no template matches so, it is taken as a slash, as the
// upstream may do.
func (t *Templates) Route(r *http.Request) string {
	if r.URL == nil {
		return Other
	}
	escaped := r.URL.EscapedPath()
	if len(escaped) > maxPath {
		return Other
	}
	plain := normal(escaped)
	pattern := t.ask(r, plain)
	if pattern == "" && strings.IndexByte(plain, '%') >= 0 {
		pattern = t.ask(r, escape(normal(r.URL.Path)))
	}
	return Name(r.Method, pattern)
}

// ask asks the mux about a path in its escaped form.
func (t *Templates) ask(r *http.Request, escaped string) string {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return ""
	}
	probe := t.probes.Get().(*http.Request) //nolint:forcetypeassert // the pool holds nothing else
	probe.Method, probe.Host = r.Method, r.Host
	if r.Method == http.MethodConnect {
		probe.Method = http.MethodGet // a mux does not clean the path of a tunnel
	}
	probe.URL.Path, probe.URL.RawPath = plain, ""
	if plain != escaped {
		probe.URL.RawPath = escaped
	}
	_, pattern := t.mux.Handler(probe)
	t.probes.Put(probe)
	return pattern
}

// normal takes out of an escaped path what may be spelt otherwise: escapes of
// unreserved letters, then dot segments and empty ones (RFC 3986, 6.2.2), also at
// the end: the mux tries the slash there by itself.
func normal(escaped string) string {
	if strings.IndexByte(escaped, '%') >= 0 {
		escaped = unescapeUnreserved(escaped)
	}
	if escaped == "" || escaped[0] != '/' {
		escaped = "/" + escaped
	}
	if !strings.Contains(escaped, "//") && !strings.Contains(escaped, "/.") && !strings.HasSuffix(escaped, "/") {
		return escaped
	}
	return path.Clean(escaped)
}

func unescapeUnreserved(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, ok := unhex(s[i+1], s[i+2]); ok && unreserved(c) {
				out.WriteByte(c)
				i += 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func unhex(hi, lo byte) (byte, bool) {
	h, ok1 := digit(hi)
	l, ok2 := digit(lo)
	return h<<4 | l, ok1 && ok2
}

func digit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// escape writes a decoded path as EscapedPath does.
func escape(plain string) string { return (&url.URL{Path: plain}).EscapedPath() }
