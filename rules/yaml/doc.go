// Package yaml reads rules from YAML files.
//
//	rules:
//	  - id: growth-global
//	    match: { plan: growth }
//	    identity: api_key
//	    algorithm: token_bucket
//	    rate: 100
//	    burst: 200
//	overrides:
//	  - key: acct_7Q2
//	    rule: growth-global
//	    rate: 500
//
// [Parse] turns each rule into JSON and hands it to package rules, so that a
// file and the API accept the same fields and say the same about them; here they
// also get a line and a column. A faulty rule is skipped alone. A file that is
// faulty as a whole (no YAML, no list of rules) is refused as a whole.
//
// The YAML is a plain subset: one document, no anchors, aliases, tags or "?"
// keys. Numbers are decimal digits; everything else is text.
//
// [File] follows one file. Its modification time, in ms, orders changes over
// restarts and between pods with copies of the file: touch a file after an older
// copy was put in its place, and keep modification times when copying to pods.
// Replace a file by renaming a complete new one over it.
package yaml
