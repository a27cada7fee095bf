package tallygate

// Check is all entries of one request, decided together. It names them itself
// (Entries), or gives Attributes, or several Sets of them, and lets the rules match;
// one of the three.
type Check struct {
	// Domain is the set of rules to use; "" means "default".
	Domain string
	// Entries name rule and key one by one; their rules' match is ignored.
	Entries []Entry
	// Attributes are the named facts of the request: plan, route, ip, api_key, …
	Attributes map[string]string
	// Cost is what the request spends on every matching rule, in tokens: 1 to
	// 10^9, 0 means 1. For Attributes only.
	Cost int64
	// Look asks without spending (cost 0 in the API). For Attributes only.
	Look bool
	// Sets are several groups of attributes, decided together.
	Sets []Set
	// Alternatives names an attribute, for Sets: rules whose match has the same value of
	// it choose among the forms of one set, and do not supersede each other over several.
	// "" is none. See rules.SupersedeAcross.
	Alternatives string
	// CountDenied counts every hit, as envoyproxy/ratelimit does: each rule spends by
	// itself whatever the others say, and what a fixed window denies is added to its
	// count all the same, by a second call of the store. Other algorithms deny as ever:
	// in them whoever keeps asking would never be let in. Each check asks the store, no
	// lease and no remembered denial. Reserve takes no notice of it.
	CountDenied bool
}

// Entry is one (rule, key, cost) of a check.
type Entry struct {
	Rule string
	// Key is the identity value, or the values of a rule that counts by several,
	// in the rule's order. Each is 1 byte to 4 KiB together.
	Key []string
	// Cost is what the request spends here, in tokens: 1 to 10^9, 0 means 1.
	Cost int64
	// Look asks without spending (cost 0 in the API).
	Look bool
}
