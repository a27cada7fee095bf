package feed

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest that a long poll waits.
const MaxWait = time.Minute

// question is what a watcher asks.
type question struct {
	since  int64
	wait   time.Duration
	stream bool
}

// ServeHTTP answers GET /v1/changes?since=N&wait=30s.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		answer(w, http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed", r.Method+" is not answered here; use GET")
		return
	}
	ask, err := read(r)
	if err != nil {
		answer(w, http.StatusBadRequest, "bad_request", "Malformed request", err.Error())
		return
	}
	select {
	case h.watchers <- struct{}{}:
		defer func() { <-h.watchers }()
	default:
		refuse(w, "overloaded", "Too many requests in flight", fmt.Sprintf("%d watchers are served already, which is the most", h.cfg.MaxWatchers))
		return
	}
	select {
	case <-h.closing:
		refuse(w, "not_ready", "Not ready", "the control plane is shutting down")
		return
	default:
	}
	if !h.Ready() {
		refuse(w, "not_ready", "Not ready", "the rules have not been read yet")
		return
	}
	// A server's read timeout is for bodies, and would end a long poll.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // where it cannot, it has none either
	if ask.stream {
		h.stream(w, r, ask.since)
		return
	}
	h.poll(w, r, ask)
}

// read reads a question strictly.
func read(r *http.Request) (question, error) {
	ask := question{stream: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return ask, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, values := range query {
		if len(values) != 1 {
			return ask, fmt.Errorf("%.40q is there %d times; give it once", name, len(values))
		}
		switch name {
		case "since":
			ask.since, err = strconv.ParseInt(values[0], 10, 64)
			if err != nil || ask.since < 0 {
				return ask, fmt.Errorf("since is %.40q; give a revision, a whole number from 0", values[0])
			}
		case "wait":
			ask.wait, err = time.ParseDuration(values[0])
			if err != nil || ask.wait < 0 || ask.wait > MaxWait {
				return ask, fmt.Errorf("wait is %.40q; give a duration from 0s to 60s", values[0])
			}
		default:
			return ask, fmt.Errorf("%.40q is unknown; there are since and wait", name)
		}
	}
	if id := r.Header.Get("Last-Event-ID"); ask.stream && id != "" {
		ask.since, err = strconv.ParseInt(id, 10, 64)
		if err != nil || ask.since < 0 {
			return ask, fmt.Errorf("header Last-Event-ID is %.40q; give the id of an event", id)
		}
	}
	return ask, nil
}

// poll waits until there is another revision, or long enough, and answers.
func (h *Hub) poll(w http.ResponseWriter, r *http.Request, ask question) {
	s := h.state.Load()
	if s.set.Revision == ask.since && ask.wait > 0 {
		late := time.NewTimer(ask.wait)
		defer late.Stop()
		s = h.next(r, ask.since, late.C)
	}
	if r.Context().Err() != nil {
		return // nobody is there any more
	}
	end, err := s.answer(ask.since)
	if err != nil {
		h.cfg.Log.Error("the rules cannot be encoded", "error", err)
		answer(w, http.StatusInternalServerError, "internal", "Internal error", "the rules cannot be encoded")
		return
	}
	start := h.start(s)
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Length", strconv.Itoa(len(start)+len(end)-1))
	h.write(w, start, end[1:])
}

// next returns the first state of another revision than since, or the current one
// once late fires, the client has gone or the hub closes.
func (h *Hub) next(r *http.Request, since int64, late <-chan time.Time) *state {
	for {
		s := h.state.Load()
		if s.set.Revision != since {
			return s
		}
		select {
		case <-s.replaced:
		case <-late:
			return s
		case <-r.Context().Done():
			return s
		case <-h.closing:
			return s
		}
	}
}

// start is the part of an answer that is another each time, up to the place of the
// brace of the rest.
func (h *Hub) start(s *state) []byte {
	b := strconv.AppendInt([]byte(`{"revision":`), s.set.Revision, 10)
	b = strconv.AppendInt(append(b, `,"now_ms":`...), h.now().UnixMilli(), 10)
	return append(b, ',')
}

// piece is the size of a write that has a deadline of its own.
const piece = 64 << 10

// write writes all parts, each piece within the time for one: a client that takes
// nothing does not hold its goroutine. It reports whether the client took them.
func (h *Hub) write(w http.ResponseWriter, parts ...[]byte) bool {
	control := http.NewResponseController(w)
	for _, part := range parts {
		for len(part) > 0 {
			n := min(len(part), piece)
			// The deadline of the machine's clock, whatever Now says. Where the server
			// cannot set one, its own write timeout holds.
			_ = control.SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout))
			if _, err := w.Write(part[:n]); err != nil {
				return false
			}
			part = part[n:]
		}
	}
	return true
}
