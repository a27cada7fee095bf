package server

import (
	"net/http"

	"github.com/tallygate/tallygate"
)

// Version is what GET /version answers.
type Version struct {
	// Version is the module's version, Revision the commit, Go the compiler.
	Version, Revision, Go string
}

// healthz says that the process lives. It asks nothing and nobody: a store that
// is away must not get pods restarted.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	s.writeStatus(w, r, `{"status":"ok"}`)
}

// readyz says whether to send requests here: rules were loaded once, and the
// server is not about to stop.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.draining.Load():
		writeProblem(w, &tallygate.Error{Code: codeNotReady, Message: "the server is stopping"})
	case !s.ready():
		writeProblem(w, &tallygate.Error{Code: codeNotReady, Message: "no rules are loaded yet"})
	default:
		s.writeStatus(w, r, `{"status":"ready"}`)
	}
}

// versionz answers GET /version.
func (s *Server) versionz(w http.ResponseWriter, r *http.Request) {
	body := appendQuoted([]byte(`{"version":`), s.version.Version)
	body = appendText(body, `,"revision":`, s.version.Revision)
	body = appendText(body, `,"go":`, s.version.Go)
	s.writeStatus(w, r, string(append(body, '}')))
}

// writeStatus answers a GET or HEAD with a small JSON text.
func (s *Server) writeStatus(w http.ResponseWriter, r *http.Request, body string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.wrongMethod(w, r, "GET, HEAD")
		return
	}
	w.Header()["Content-Type"] = s.contentJSON
	_, _ = w.Write([]byte(body + "\n")) // the client is gone if this fails
}

func (s *Server) wrongMethod(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	writeProblem(w, &tallygate.Error{Code: codeMethod, Message: r.URL.Path + " takes " + allow})
}

func (s *Server) notFound(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, &tallygate.Error{
		Code: codeNotFound, Message: "there are POST /v1/ratelimit:check, :reserve, :commit and :cancel, GET /v1/ratelimit:forward for gateways, and GET /healthz, /readyz and /version",
	})
}
