// Package redisstore keeps buckets in Redis: standalone, behind Sentinel, or a
// Cluster, with TLS and ACL users.
//
// One Lua script decides all buckets of a request and spends in one atomic step,
// by the server's clock. A bucket is one key, tg:{<tag>}:<rule>; the tag is a
// hash of domain and identity, so that all buckets of one identity share a slot
// and nobody can choose theirs. Buckets of different identities lie in different
// slots of a cluster: they are asked group by group, in order, within the one
// deadline of the call; when a later group denies, what earlier ones spent is
// undone by receipts after the answer. Everywhere else one call asks them all.
//
// # How a call goes
//
// Each primary is a shard with a queue: calls that wait go out together in one
// pipelined send, by at most four goroutines a shard, whatever the server does. A call
// returns within [Config.Deadline]; what was not sent by then never is, and what was
// sent is never sent again, since it may have run. NOSCRIPT, MOVED, ASK, TRYAGAIN and
// READONLY say that nothing ran: the call goes on, within the same deadline, to where
// the answer points. The store asks the cluster by itself who owns which slots, every
// two seconds and whenever an answer or a failure says that this has changed. All else
// is a *store.StoreError.
//
// # When a shard fails
//
// After three failures in a row, or half of the last twenty, a shard is not asked any
// more: calls fail at once with StoreError.Down set. About once a second one call, or
// a beat where no call comes, finds out whether it is back. A beat is a number that
// this pod counts up on every primary four times a second. After a failover, a restart
// or a new connection it is read before anything else is sent: where it is behind, the
// last spends are lost and rules that fail closed get an error for
// [Config.FailoverHold]; where it is missing, all are, and missing buckets do not
// count as full for [Config.EmptyHold] at most.
//
// # Servers
//
// Each primary is a shard: a queue, two connections, a breaker that ends the asking of
// it alone, and a beat that tells after a failover whether spends were lost. Who owns
// which slot is asked of the cluster from time to time, and learnt from redirections.
//
// A [Store] is safe for concurrent use. It owns its connections and a bounded number
// of goroutines until Close: at most five a primary that send while calls wait, one a
// primary that beats, those that undo, and two or three that look after the servers.
package redisstore
