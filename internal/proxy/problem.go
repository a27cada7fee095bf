package proxy

import (
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate/internal/problem"
)

// retrySeconds is what a client is told to wait where this side is the reason.
const retrySeconds = 1

// writeProblem answers in place of the upstream. Causes are not shown: they may name
// hosts.
func writeProblem(w http.ResponseWriter, status int, code, title, detail string) {
	if status != http.StatusBadRequest { // the same would be as wrong later
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	}
	problem.Write(w, problem.Problem{Title: title, Status: status, Code: code, Detail: detail})
}
