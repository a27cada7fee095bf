package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/spelling"
	"github.com/tallygate/tallygate/rules"
)

// maxDepth bounds how deep a body nests: no field needs more, and a reader
// recurses.
const maxDepth = 32

// readBody reads a body of at most limit bytes that is one JSON value.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "" {
		return nil, refuse(api.UnsupportedMediaType, "send the body as it is, without Content-Encoding")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		switch _, large := errors.AsType[*http.MaxBytesError](err); {
		case large:
			return nil, refuse(api.TooLarge, fmt.Sprintf("the body is above %d bytes", limit))
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, refuse(api.RequestTimeout, "the body did not arrive in time")
		default:
			return nil, refuse(api.BadRequest, "the body ended too early")
		}
	}
	return body, nil
}

// wellFormed refuses what encoding/json takes without a word: broken UTF-8, fields
// that are given twice, text after the value. It says where.
func wellFormed(body []byte) error {
	if !utf8.Valid(body) {
		return refuseAt(api.BadRequest, "#", "the body is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := value(d, "", 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return refuseAt(api.BadRequest, "#", fmt.Sprintf("there is more after the body's value, at byte %d", d.InputOffset()))
	}
	return nil
}

// value reads one value.
func value(d *json.Decoder, at string, depth int) error {
	t, err := d.Token()
	if err != nil {
		return malformed(d, err)
	}
	open, nested := t.(json.Delim)
	if !nested {
		return nil
	}
	if depth == maxDepth {
		return refuseAt(api.BadRequest, "#", fmt.Sprintf("the body nests deeper than %d", maxDepth))
	}
	var seen map[string]bool
	if open == '{' {
		seen = map[string]bool{}
	}
	for i := 0; d.More(); i++ {
		name := strconv.Itoa(i)
		if open == '{' {
			t, err := d.Token()
			if err != nil {
				return malformed(d, err)
			}
			name, _ = t.(string) // a decoder takes nothing else as a name
			if seen[name] {
				return refuseAt(api.BadRequest, api.Pointer(clip(at+"/"+name)), fmt.Sprintf("%q stands there twice; keep one", clip(name)))
			}
			seen[name] = true
		}
		if err := value(d, at+"/"+clip(name), depth+1); err != nil {
			return err
		}
	}
	if _, err = d.Token(); err != nil { // the end of it
		return malformed(d, err)
	}
	return nil
}

func malformed(d *json.Decoder, err error) error {
	at, what := d.InputOffset(), "the body ends too early"
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at, what = e.Offset, e.Error()
	}
	return refuseAt(api.BadRequest, "#", fmt.Sprintf("malformed JSON at byte %d: %s", at, what))
}

// decode reads a body into an API type, strictly.
func decode(body []byte, into any) error {
	if err := wellFormed(body); err != nil {
		return err
	}
	return decodeFormed(body, into)
}

// decodeFormed is decode of what is well-formed: a look at 16 MiB takes a second.
func decodeFormed(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		where := strings.ReplaceAll(e.Field, ".", "/")
		return refuseAt(api.BadRequest, api.Pointer("/"+where), fmt.Sprintf("%s is no %s, at byte %d", e.Value, e.Type.Kind(), e.Offset))
	}
	// Of DisallowUnknownFields: json: unknown field "x".
	return refuseAt(api.BadRequest, "#", clip(strings.TrimPrefix(err.Error(), "json: ")))
}

// clip shortens what a caller sent.
func clip(s string) string { return spelling.Clip(s, 100) }

// checkQuery refuses parameters that are not there: a misspelt dry_run must not
// make the change.
func (c *call) checkQuery() error {
	for name, values := range c.query {
		switch {
		case !slices.ContainsFunc(c.e.query, func(p param) bool { return p.name == name }):
			return refuse(api.BadRequest, fmt.Sprintf("unknown parameter %q; known are: %s", clip(name), known(c.e.query)))
		case len(values) > 1 && name != "key":
			return refuse(api.BadRequest, fmt.Sprintf("parameter %s stands there twice; keep one", name))
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) || strings.ContainsRune(v, 0) && name != "key" }):
			return refuse(api.BadRequest, "parameter "+name+" is not valid UTF-8")
		}
	}
	return nil
}

func known(params []param) string {
	if len(params) == 0 {
		return "none"
	}
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// flag reads true or false.
func (c *call) flag(name string) (set, given bool, err error) {
	switch c.query.Get(name) {
	case "":
		if c.query.Has(name) {
			break
		}
		return false, false, nil
	case "true":
		return true, true, nil
	case "false":
		return false, true, nil
	}
	return false, true, refuse(api.BadRequest, "parameter "+name+" is true or false")
}

// number reads a whole number from 0, or what stands in for it.
func (c *call) number(name string, fallback int64) (int64, error) {
	if !c.query.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(c.query.Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0, refuse(api.BadRequest, fmt.Sprintf("parameter %s is a whole number, not %q", name, clip(c.query.Get(name))))
	}
	return n, nil
}

// limit reads the size of a page.
func (c *call) limit() (int, error) {
	n, err := c.number("limit", rulestore.DefaultPage)
	if err == nil && (n < 1 || n > rulestore.MaxPage) {
		err = refuse(api.BadRequest, fmt.Sprintf("parameter limit is 1 to %d, not %d", rulestore.MaxPage, n))
	}
	return int(n), err
}

// time reads a time of RFC 3339; none is the zero time.
func (c *call) time(name string) (time.Time, error) {
	if !c.query.Has(name) {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, c.query.Get(name))
	if err != nil {
		return t, refuse(api.BadRequest, fmt.Sprintf("parameter %s is a time like 2027-01-31T00:00:00Z, not %q", name, clip(c.query.Get(name))))
	}
	return t, nil
}

// key reads the values of a key from the query; nil where there are none.
func (c *call) key() ([]string, error) {
	key := c.query["key"]
	if len(key) == 0 {
		return nil, nil
	}
	return key, checkKey(key)
}

func checkKey(key []string) error {
	size := 0
	for _, part := range key {
		if part == "" {
			return refuse(api.BadRequest, "a value of the key is empty")
		}
		if !utf8.ValidString(part) {
			return refuse(api.BadRequest, "the key is not valid UTF-8")
		}
		size += len(part)
	}
	if len(key) == 0 || len(key) > rules.MaxIdentity {
		return refuse(api.BadRequest, fmt.Sprintf("a key has 1 to %d values, not %d", rules.MaxIdentity, len(key)))
	}
	if size > rules.MaxKeyBytes {
		return refuse(api.TooLarge, fmt.Sprintf("the key is above %d bytes", rules.MaxKeyBytes))
	}
	return nil
}

// seenThere reads which version the caller has seen of something that must be there.
func (c *call) seenThere(what string) (int64, error) {
	h := c.r.Header
	switch {
	case len(h.Values("If-None-Match")) > 0:
		return 0, refuseAt(api.BadRequest, "If-None-Match", "this is about "+what+" that is there: send If-Match")
	case len(h.Values("If-Match")) == 0:
		return 0, refuse(api.PreconditionRequired, `send If-Match: "VERSION" with the ETag of `+what+` as you have seen it`)
	}
	return c.seen()
}

// seen reads which version the caller has seen; 0 says that there must be none.
func (c *call) seen() (int64, error) {
	h := c.r.Header
	match, none := h.Values("If-Match"), h.Values("If-None-Match")
	switch {
	case len(match)+len(none) == 0:
		return 0, refuse(api.PreconditionRequired, `send If-Match: "VERSION" with the ETag you have seen, or If-None-Match: * to create`)
	case len(match)+len(none) > 1:
		return 0, refuse(api.BadRequest, "send one If-Match or one If-None-Match")
	case len(none) == 1:
		if strings.TrimSpace(none[0]) != "*" {
			return 0, refuseAt(api.BadRequest, "If-None-Match", "If-None-Match is *")
		}
		return 0, nil
	}
	text := strings.TrimSpace(match[0])
	inner, ok := strings.CutPrefix(text, `"`)
	inner, ended := strings.CutSuffix(inner, `"`)
	version, err := strconv.ParseInt(inner, 10, 64)
	if !ok || !ended || err != nil || version < 1 || inner[0] == '+' {
		return 0, refuseAt(api.BadRequest, "If-Match", `If-Match is one version in quotes, such as "7", not `+clip(text))
	}
	return version, nil
}
