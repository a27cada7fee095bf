package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// ScriptRuns is how often the server has run a script since it started: calls of
// EVAL and EVALSHA that were neither refused nor failed, as with NOSCRIPT.
func (s *Server) ScriptRuns(t testing.TB) int64 {
	t.Helper()
	info, err := s.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	var runs int64
	for _, command := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		for field := range strings.SplitSeq(info[command], ",") {
			name, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch name {
			case "calls":
				runs += n
			case "failed_calls":
				runs -= n
			}
		}
	}
	return runs
}

// Connections is how many connections the server has accepted since it started,
// this package's own included.
func (s *Server) Connections(t testing.TB) int64 {
	t.Helper()
	info, err := s.Info("stats")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(info["total_connections_received"], 10, 64)
	if err != nil {
		t.Fatal(fmt.Errorf("connections of %s: %w", s.Addr, err))
	}
	return n
}
