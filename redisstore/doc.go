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
// # Errors and deadlines
//
// A call returns within [Config.Deadline], whatever the server or the network
// does; then its outcome is unknown, and it is never sent again. NOSCRIPT, MOVED
// and ASK are routine, TRYAGAIN and READONLY are retried after 1 ms. All else is a
// *store.StoreError.
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
