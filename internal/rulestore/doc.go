// Package rulestore is the contract of the rules of record: rules with their
// candidates, overrides and resets of keys, in a database, with every version that
// ever was, who made it and why. Packages sqlite and postgres keep it, sqldb is
// what they share, and rulestoretest is the suite that both pass.
//
//	admin API, tallygate rules ─► Writer.Apply ─► one transaction:
//	    the revision row is locked first, so commits come in the order of revisions
//	    version checked (If-Match) · rule or override · its version · audit row
//	pods ─► Source.Load ─► Reader.Since, each minute Reader.Whole ─► rules.Watcher
//	          ▲ Follow ◄── Waiter.Wait: a hint, never the truth
//
// A consumer takes the interface it needs: [Reader], [Waiter], [Records],
// [Overrides], [Historian], [Auditor], [Writer]. A store implements all of them
// and is safe for concurrent use.
//
// # Versions and revisions
//
// A version counts the changes of one rule or one override, from 1; a deleted one
// that is made again goes on counting, so that a version is never used twice. It
// is what If-Match compares. A revision orders the changes of the whole store: one
// transaction has one, larger than all before it and at least the writer's clock
// in Unix ms, so that it also stays above the revisions of rules files and of a
// database that was restored or replaced.
//
// # Rows written by others
//
// Who writes with SQL must set the revision row in the same transaction, or waits
// up to a minute for the comparison of the whole. A row whose body cannot be read
// is skipped alone and named; see [Set.Live].
package rulestore
