package admin_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
)

// document is the OpenAPI document as it is served, read as plain JSON: what a
// client of another language would have.
type document struct {
	root  map[string]any
	paths []documented
}

type documented struct {
	path *regexp.Regexp
	name string
	item map[string]any
}

// served fetches the document.
func served(t testing.TB, h http.Handler, tokens admin.Tokens) *document {
	t.Helper()
	d := &document{}
	req := httptest.NewRequest(http.MethodGet, "http://localhost/v1/openapi.json", nil)
	req.RemoteAddr = "127.0.0.1:1"
	if tokens != nil {
		// Any role may read it; the rig of the test has no token at hand.
		a := start(t, nil)
		return a.doc
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if err := json.Unmarshal(w.Body.Bytes(), &d.root); err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", w.Code, err, w.Body)
	}
	paths, _ := d.root["paths"].(map[string]any)
	for name, item := range paths {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(name), `[^/]+`)
		d.paths = append(d.paths, documented{regexp.MustCompile("^" + pattern + "$"), name, item.(map[string]any)})
	}
	// The longest first: {id}:shadow before {id}.
	slices.SortFunc(d.paths, func(a, b documented) int { return len(b.name) - len(a.name) })
	return d
}

// operation returns what the document says of a request; nil for nothing.
func (d *document) operation(method, path string) map[string]any {
	path, _, _ = strings.Cut(path, "?")
	for _, p := range d.paths {
		if op, ok := p.item[strings.ToLower(method)].(map[string]any); ok && p.path.MatchString(path) {
			return op
		}
	}
	return nil
}

// validate compares an answer with the document.
func (d *document) validate(method, path string, got reply) error {
	op := d.operation(method, path)
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	var content any
	switch {
	case op == nil && got.status < 400:
		return fmt.Errorf("the document does not have it")
	case op == nil:
		content = dig(d.root, "components", "schemas", "Problem")
	default:
		responses := op["responses"].(map[string]any)
		response, ok := responses[fmt.Sprint(got.status)]
		if !ok && got.status >= 400 {
			response, ok = responses["default"]
		}
		if !ok {
			return fmt.Errorf("it does not know status %d", got.status)
		}
		if dig(response, "content") == nil {
			return nil // not JSON of ours
		}
		if content = dig(response, "content", kind, "schema"); content == nil {
			return fmt.Errorf("it does not know %q for status %d", kind, got.status)
		}
	}
	var value any
	if err := json.Unmarshal(got.body, &value); err != nil {
		return err
	}
	return d.check(content, value, "")
}

func dig(v any, names ...string) any {
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// check is as much of JSON Schema as the document uses; a word it does not know
// is a fault, so that nothing passes unchecked.
func (d *document) check(schema, value any, at string) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: there is no schema", at)
	}
	for word, v := range s {
		if err := d.word(s, word, v, value, at); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) word(s map[string]any, word string, v, value any, at string) error {
	object, _ := value.(map[string]any)
	list, _ := value.([]any)
	number, isNumber := value.(float64)
	switch word {
	case "description", "format", "additionalProperties", "maxItems", "minItems":
	case "$ref":
		name := strings.TrimPrefix(v.(string), "#/components/schemas/")
		return d.check(dig(d.root, "components", "schemas", name), value, at)
	case "anyOf":
		var last error
		for _, one := range v.([]any) {
			if last = d.check(one, value, at); last == nil {
				return nil
			}
		}
		return last
	case "type":
		kinds, ok := v.([]any)
		if !ok {
			kinds = []any{v}
		}
		if !slices.ContainsFunc(kinds, func(k any) bool { return is(k.(string), value) }) {
			return fmt.Errorf("%s: %v is no %v", at, value, v)
		}
	case "enum":
		if !slices.Contains(v.([]any), value) {
			return fmt.Errorf("%s: %v is none of %v", at, value, v)
		}
	case "minimum":
		if isNumber && number < v.(float64) {
			return fmt.Errorf("%s: %v is below %v", at, number, v)
		}
	case "maximum":
		if isNumber && number > v.(float64) {
			return fmt.Errorf("%s: %v is above %v", at, number, v)
		}
	case "required":
		for _, name := range v.([]any) {
			if _, ok := object[name.(string)]; object != nil && !ok {
				return fmt.Errorf("%s: %v is missing", at, name)
			}
		}
	case "properties":
		for name, member := range object {
			property := dig(v, name)
			if property == nil {
				if s["additionalProperties"] == false {
					return fmt.Errorf("%s: %s is not described", at, name)
				}
				continue
			}
			if err := d.check(property, member, at+"/"+name); err != nil {
				return err
			}
		}
	case "items":
		for i, item := range list {
			if err := d.check(v, item, fmt.Sprintf("%s/%d", at, i)); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s: this test does not know %q", at, word)
	}
	return nil
}

func is(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	case []any:
		return kind == "array"
	default:
		return kind == "object"
	}
}

func TestDocument_isOpenAPI31AndDescribesEverything(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	if v, _ := r.doc.root["openapi"].(string); !strings.HasPrefix(v, "3.1") {
		t.Errorf("got version %q", v)
	}
	seen := map[string]bool{}
	for _, p := range r.doc.paths {
		for method, op := range p.item {
			id, _ := dig(op, "operationId").(string)
			if id == "" || seen[id] {
				t.Errorf("%s %s: operation %q is nameless or there twice", method, p.name, id)
			}
			seen[id] = true
		}
	}
	if len(seen) < 28 {
		t.Errorf("%d operations", len(seen))
	}
	// A check that passes everything proves nothing.
	bad := reply{status: 200, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"id":"a","version":"1"}`)}
	if r.doc.validate("GET", "/v1/rules/a", bad) == nil {
		t.Error("a version that is a text passes")
	}
}
