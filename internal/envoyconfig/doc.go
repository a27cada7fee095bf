// Package envoyconfig reads the configuration of envoyproxy/ratelimit, answers what
// its service would match, and turns it into rules.
//
//	DIR ─► Read ─► *Tree ─┬─► Lint      what there is most likely a mistake
//	                      ├─► MatchAll  which limits their service would count
//	                      └─► Import ─► rules.Set + a note for every line
//	                                        └─► RulesYAML, Report
//
// There a request is looked up in a tree and meets one limit a descriptor; here every
// rule that matches applies. Three things make the same of it:
//
//   - [Attributes] gives a descriptor, beside its entries, the attribute
//     [AttrPath]: its keys in order. A rule matches it exactly, so that it meets
//     only descriptors with just these entries.
//   - A value that hides others there (an exact value the wildcards, a wildcard the
//     default) is a rule that supersedes those of the others.
//   - Where what hides has no limit of its own, a rule with action allow stands in
//     for it and supersedes the rest.
//
// So of the imported rules exactly one applies to a descriptor, or one of action allow
// that counts nothing.
//
// Reading, matching and importing are pure functions of the files' bytes. A [Tree] is
// immutable and safe for concurrent use; a [Source] is for one goroutine.
package envoyconfig
