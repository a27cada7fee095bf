package feed

import (
	"net/http"

	"github.com/tallygate/tallygate/internal/problem"
)

// refuse answers 503: a moment later it may be different.
func refuse(w http.ResponseWriter, code, title, detail string) {
	w.Header().Set("Retry-After", "1")
	answer(w, http.StatusServiceUnavailable, code, title, detail)
}

// answer answers with a problem.
func answer(w http.ResponseWriter, status int, code, title, detail string) {
	problem.Write(w, problem.Problem{Title: title, Status: status, Code: code, Detail: detail})
}
