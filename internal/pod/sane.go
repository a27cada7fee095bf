package pod

import "github.com/tallygate/tallygate/store"

// maxLeaseMS is the longest life a lease can have: two generations.
const maxLeaseMS = 1000

// sane cuts what a store answers down to what may be asked. A store that answers
// nonsense, by a fault or another version, must not make a pod admit more.
func (c *Call) sane(grants []store.Grant) {
	for i := range min(len(grants), len(c.Ops)) {
		op, g := &c.Ops[i], &grants[i]
		most := op.Want
		if i < len(c.most) {
			most = c.most[i]
		}
		g.Queue = max(0, min(g.Queue, op.Queue))
		g.Lease = max(0, min(g.Lease, most))
		g.LeaseMS = max(0, min(g.LeaseMS, maxLeaseMS))
		g.RetryMS, g.Remaining = max(0, g.RetryMS), max(0, g.Remaining)
		if g.Limit == nil {
			g.Limit = op.Limit
		}
		if g.Generation < 0 || g.LeaseMS == 0 {
			g.Lease = 0
		}
	}
}
