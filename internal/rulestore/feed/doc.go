// Package feed carries changes of the rules of record to pods over HTTP.
//
//	database ─► Hub: one follower, the set and recent changes in memory
//	              │ └─► rulestore.Source ─► rules.Watcher of this process
//	              │  GET /v1/changes?since=N: a long poll, or a stream
//	              ▼
//	            Client on each pod, without a row: rulestore.Reader and rulestore.Waiter
//	              └─► rulestore.Source ─► rules.Watcher
//
// The hub wakes its watchers itself: 150 pods that wait cost the database nothing,
// and one change is encoded once. Order is that of revisions; a hint only says that
// it is worth looking. While the database is away the hub serves what it has.
//
// A Hub has one goroutine, from Start until Close; each watcher is a request of the
// server's, bounded in number and at each write. A Client has none.
package feed
