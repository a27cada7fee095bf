// Package unlimited says in a log that requests pass since their domain has no rule.
// That lets a site live on when its last rule is deleted, but a domain that is misspelt
// or not set at all would never show.
//
// A [Notice] holds two numbers and no lock, and may be used by any number of goroutines.
package unlimited

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tallygate/tallygate/internal/sampled"
)

// Every is how long a notice is silent after a line.
const Every = time.Minute

// Notice logs that requests pass unlimited, at most one line each [Every].
type Notice struct {
	log  *slog.Logger
	fix  string
	gate sampled.Gate
}

// To returns a notice that has not logged yet; nil means slog.Default.
func To(log *slog.Logger) *Notice {
	if log == nil {
		log = slog.Default()
	}
	return &Notice{log: log, fix: "set Domain (--domain) to one that has rules"}
}

// ToEnvoys is [To] where each request names its domain, as Envoy's do.
func ToEnvoys(log *slog.Logger) *Notice {
	n := To(log)
	n.fix = "give Envoy's rate limit filter a domain that has rules"
	return n
}

// Passed tells of one request that passed; domain "" is the default one.
func (n *Notice) Passed(now time.Time, domain string) {
	if unlogged, ok := n.gate.Pass(now, Every); ok {
		n.log.Warn("requests pass unlimited: there is no rule in their domain", "fix", n.fix,
			"domain", cmp.Or(domain, "default"), "passed", unlogged+1)
	}
}
