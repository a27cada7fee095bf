package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/fleet"
)

// Bounds of a request. A bulk of 100,000 overrides takes SQLite half a minute, and
// more on a busy machine.
const (
	maxBody      = 1 << 20
	maxBulk      = 16 << 20
	answerWithin = 20 * time.Second
	bulkWithin   = 5 * time.Minute
)

// call is one request, on its way to its endpoint.
type call struct {
	caller
	r     *http.Request
	e     *endpoint
	query url.Values
	body  []byte
}

// answer is what an endpoint says.
type answer struct {
	status  int // 0 means 200
	version int64
	body    any
}

// serve leads a request to its endpoint: the one place that says what is asked of
// it before, in which order.
func (a *API) serve(e *endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		slots := a.requests
		if e.poll {
			slots = a.polls
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			a.writeProblem(w, r, refuse(api.Overloaded, "too many requests are under way; come back in a moment"))
			return
		}
		c := &call{r: r, e: e}
		if err := a.admit(c); err != nil {
			a.writeProblem(w, r, err)
			return
		}
		if e.raw != nil {
			unhurried(w, e.poll)
			e.raw.ServeHTTP(w, r)
			return
		}
		answered, err := a.ask(w, c)
		if err != nil {
			a.writeProblem(w, r, err)
			return
		}
		if answered.version > 0 {
			w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(answered.version, 10)))
		}
		write(w, "application/json", or(answered.status, http.StatusOK), answered.body)
	}
}

// admit says whether the caller may ask this.
func (a *API) admit(c *call) (err error) {
	if c.e.access == anybody {
		return nil
	}
	if c.caller, err = a.identify(c.r); err != nil {
		if pace := a.keepPace(c.r.Context(), c.caller); pace != nil {
			return pace // who guesses tokens does it slowly
		}
		return err
	}
	// Browsers send what other sites' pages want; those may look at nothing anyway.
	if a.origins.Check(c.r) != nil {
		return refuse(api.Forbidden, "pages of other sites may not change anything here")
	}
	if err := c.e.may(c.token); err != nil {
		return err
	}
	if c.e.exempt {
		return nil
	}
	return a.keepPace(c.r.Context(), c.caller)
}

// ask reads what the endpoint needs and has it answer.
func (a *API) ask(w http.ResponseWriter, c *call) (answer, error) {
	within, most := answerWithin, int64(maxBody)
	if c.e.access == reporting {
		most = fleet.MaxReportBytes
	}
	if c.e.bulk {
		within, most = bulkWithin, maxBulk
		deadline := time.Now().Add(bulkWithin)
		rc := http.NewResponseController(w)
		_, _ = rc.SetReadDeadline(deadline), rc.SetWriteDeadline(deadline) // not every writer can
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), within)
	defer cancel()
	c.r = c.r.WithContext(ctx)
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return answer{}, refuse(api.BadRequest, "the query cannot be read: "+clip(err.Error()))
	}
	c.query = query
	if err := c.checkQuery(); err != nil {
		return answer{}, err
	}
	if c.e.in != nil {
		if c.body, err = readBody(w, c.r, most); err != nil {
			return answer{}, err
		}
	}
	if !c.e.bulk {
		unhurried(w, false)
	}
	return c.e.answer(c)
}

// unhurried ends the time for reading once a request is read: net/http takes the
// end of it for a client that has gone, also while the answer is made. A long poll
// ends by itself, and may write until then.
func unhurried(w http.ResponseWriter, poll bool) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // not every writer can
	if poll {
		_ = rc.SetWriteDeadline(time.Time{})
	}
}

// route makes the routes of the table.
func (a *API) route() *chi.Mux {
	mux := chi.NewRouter()
	for i := range a.endpoints {
		e := &a.endpoints[i]
		mux.Method(e.method, e.route(), a.serve(e))
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, r, refuse(api.NotFound, "there is no such endpoint; GET /v1/openapi.json lists them"))
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, path(r)) {
				allowed = append(allowed, method)
			}
		}
		detail := "this endpoint has " + strings.Join(allowed, ", ")
		if verb, ok := a.unknownVerb(r); ok {
			detail = verb
		}
		e := refuse(api.MethodNotAllowed, detail)
		e.allow = strings.Join(allowed, ", ")
		a.writeProblem(w, r, e)
	})
	return mux
}

// unknownVerb says which verbs a rule has, where a request has another one: to the
// router it is the id of a rule.
func (a *API) unknownVerb(r *http.Request) (told string, ok bool) {
	const rule = "/v1/rules/{id}:"
	id, verb, cut := strings.Cut(strings.TrimPrefix(path(r), "/v1/rules/"), ":")
	if !cut || id == "" || r.Method != http.MethodPost || !strings.HasPrefix(path(r), "/v1/rules/") || strings.Contains(verb, "/") {
		return "", false
	}
	var verbs []string
	for _, e := range a.endpoints {
		if known, ok := strings.CutPrefix(e.path, rule); ok {
			verbs = append(verbs, ":"+known)
		}
	}
	return fmt.Sprintf("there is no :%s of a rule; there are %s", clip(verb), strings.Join(verbs, ", ")), true
}

// path is what chi routes by.
func path(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}

// pattern is the endpoint that a request met.
func pattern(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		return c.RoutePattern()
	}
	return ""
}

// param returns a part of the path, unescaped.
func (c *call) param(name string) string {
	text, err := url.PathUnescape(chi.URLParam(c.r, name))
	if err != nil {
		return "" // net/http has unescaped it once
	}
	return text
}
