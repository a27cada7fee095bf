package admin

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// describe makes the OpenAPI document of the table and of the types of package
// api. Huma makes schemas of types; reading stays our own, which is stricter.
func (a *API) describe() ([]byte, error) {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Tallygate admin API", Version: a.cfg.Version,
			Description: "Rules, candidates and overrides, what is left for a key, and the pods. docs/admin-api.md tells it in words.",
		},
		Components: &huma.Components{
			Schemas:         schemas,
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "a token of the server's file; none is needed on the same machine where there is no file"}},
		},
		Paths: map[string]*huma.PathItem{},
	}
	problem := &huma.Response{Description: "A problem", Content: content("application/problem+json", schemas.Schema(of[api.Problem](), true, ""))}
	for i := range a.endpoints {
		e := &a.endpoints[i]
		item := doc.Paths[e.path]
		if item == nil {
			item = &huma.PathItem{}
			doc.Paths[e.path] = item
		}
		op := e.operation(schemas)
		op.Responses["default"] = problem
		switch e.method {
		case http.MethodGet:
			item.Get = op
		case http.MethodPut:
			item.Put = op
		case http.MethodPost:
			item.Post = op
		case http.MethodDelete:
			item.Delete = op
		}
	}
	loosen(schemas)
	return json.Marshal(&doc)
}

func content(kind string, schema *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{kind: {Schema: schema}}
}

// operation describes an endpoint.
func (e *endpoint) operation(schemas huma.Registry) *huma.Operation {
	op := &huma.Operation{OperationID: e.id, Summary: e.summary, Responses: map[string]*huma.Response{}}
	text := &huma.Schema{Type: huma.TypeString}
	for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(e.path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: name[1], In: "path", Required: true, Schema: text})
	}
	for _, p := range e.query {
		op.Parameters = append(op.Parameters, &huma.Param{Name: p.name, In: "query", Description: p.doc, Schema: text})
	}
	if e.matched {
		op.Parameters = append(op.Parameters,
			&huma.Param{Name: "If-Match", In: "header", Description: "the ETag that the caller has seen", Schema: text},
			&huma.Param{Name: "If-None-Match", In: "header", Description: "* to create", Schema: text})
	}
	if e.access != anybody {
		op.Security = []map[string][]string{{"token": {}}}
	}
	if e.in != nil {
		op.RequestBody = &huma.RequestBody{Required: e.in != of[api.Force](), Content: content("application/json", e.body(schemas))}
	}
	if e.raw != nil {
		op.Responses["200"] = &huma.Response{Description: e.summary}
		return op
	}
	answer := e.answered(schemas)
	op.Responses["200"] = &huma.Response{Description: "Done", Content: content("application/json", answer)}
	if e.created {
		op.Responses[strconv.Itoa(http.StatusCreated)] = &huma.Response{Description: "Made", Content: content("application/json", schemas.Schema(e.out, true, ""))}
	}
	return op
}

// body is the schema of what an endpoint reads.
func (e *endpoint) body(schemas huma.Registry) *huma.Schema {
	switch e.in {
	case of[ruleBody]():
		return &huma.Schema{Type: huma.TypeObject, Description: "a rule, as in docs/rules.md", AdditionalProperties: true}
	case of[overrideBody]():
		one := &huma.Schema{Type: huma.TypeObject, Description: "an override, as in docs/rules.md", AdditionalProperties: true}
		return &huma.Schema{AnyOf: []*huma.Schema{schemas.Schema(of[api.Overrides](), true, ""), one}}
	}
	return schemas.Schema(e.in, true, "")
}

// answered is the schema of what an endpoint answers with 200.
func (e *endpoint) answered(schemas huma.Registry) *huma.Schema {
	schema := schemas.Schema(e.out, true, "")
	other := map[string]reflect.Type{"putRule": of[api.Planned](), "putOverrides": of[api.OverridesApplied]()}[e.id]
	if other == nil {
		return schema
	}
	return &huma.Schema{AnyOf: []*huma.Schema{schema, schemas.Schema(other, true, "")}}
}

// loosen says what types do not: a key of one value may be sent as a text, and
// actions are the store's.
func loosen(schemas huma.Registry) {
	actions := make([]any, 0, len(rulestore.Actions()))
	for _, action := range rulestore.Actions() {
		actions = append(actions, string(action))
	}
	for name, schema := range schemas.Map() {
		for field, s := range schema.Properties {
			switch {
			case field == "key" && slices.Contains([]string{"Change", "CheckEntry"}, name):
				schema.Properties[field] = &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeString}, s}}
			case field == "action" && slices.Contains([]string{"Change", "Entry", "Version"}, name):
				s.Enum = actions
			}
		}
	}
}

func (a *API) openapi(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/openapi+json")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(a.document) // the client is gone if this fails
}
