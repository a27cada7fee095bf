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
// A [Store] is safe for concurrent use. It owns its connections and a bounded number
// of goroutines: one a call under way, and those that undo, until Close.
package redisstore
