package tallygate

// Verdict is the answer to a check. The strictest entry's verdict is the check's.
type Verdict struct {
	// Allow says that the request may pass.
	Allow bool
	// DeniedBy is the rule that denied, the one Tightest speaks of; "" if none.
	DeniedBy string
	// Reason says why where no entry does: no_rule.
	Reason Reason
	// RetryMS is how long to wait until the same check would pass, in ms: the
	// longest of the denying entries'. 0 on allow, and where no waiting helps.
	RetryMS int64
	// Degraded says that the store did not answer, and the pod did in its place, yes
	// or no: store_timeout or store_unavailable; "" otherwise.
	Degraded Degraded
	// NowMS is the clock of the decision in ms of the UTC epoch; 0 if the store
	// was not asked.
	NowMS int64
	// Entries are the answers one by one, in the order of the check or, with
	// attributes, of the rules.
	Entries []EntryVerdict
	// Tightest is the index in Entries of the entry all headers speak of: the
	// longest retry among denials, else the least remaining, ties by order; -1 if
	// no entry has numbers to show.
	Tightest int
}

// EntryVerdict is the answer to one entry.
type EntryVerdict struct {
	Rule string
	// Set is the place in Check.Sets that the entry is of; 0 without sets.
	Set int
	// Allow is this entry's own verdict; a shadow entry shows what it would say.
	Allow  bool
	Shadow bool
	Reason Reason
	// Limit is burst, capacity or limit; Remaining what is left after this check,
	// in whole tokens; ResetMS the time to full, to the window's end or until the
	// log is empty; WindowMS the time in which Limit comes back. They are
	// meaningful when Counted is true, RetryMS also for a denial by the fallback.
	Limit, Remaining, RetryMS, ResetMS, WindowMS int64
	Counted                                      bool
	Source                                       Source

	reports bool // the rule only counts: no header speaks of it
}

// Enforced reports whether the entry can deny: its rule is no shadow and does not
// only report.
func (a *EntryVerdict) Enforced() bool { return !a.Shadow && !a.reports }

// Reason says why an entry or a check was answered so.
type Reason string

// The reasons.
const (
	ReasonNone       Reason = ""
	ReasonOverLimit  Reason = "over_limit"
	ReasonCostExceed Reason = "cost_exceeds_limit"
	ReasonDenied     Reason = "denied"
	ReasonNoRule     Reason = "no_rule"
	ReasonTimeout    Reason = "store_timeout"
	ReasonNoStore    Reason = "store_unavailable"
	// ReasonTooManyReservations: the bucket has as many open ones as it can.
	// ReasonSettled: the reservation was committed or canceled before.
	ReasonTooManyReservations Reason = "too_many_reservations"
	ReasonSettled             Reason = "reservation_settled"
)

// Source says where an answer came from.
type Source string

// The sources at work.
const (
	SourceStore     Source = "store"
	SourceLease     Source = "lease"
	SourceDenyCache Source = "deny_cache"
	SourcePreLimit  Source = "pre_limit"
	SourceAsync     Source = "async"
	SourceLocal     Source = "local"
	SourceFallback  Source = "fallback"
	SourceAllowlist Source = "allowlist"
	SourceRule      Source = "rule"
	SourceNone      Source = "none"
)

// Degraded says why a check was answered without the store.
type Degraded string

// The ways to be degraded.
const (
	DegradedTimeout     Degraded = "store_timeout"
	DegradedUnavailable Degraded = "store_unavailable"
)
