package pod

import (
	"time"

	"github.com/tallygate/tallygate/store"
)

// giveBackBefore is how long before its end a lease stops being spent and what is
// left of it goes back: a report that comes after the end is ignored, and the
// tokens would be lost to the customer until they refill.
const giveBackBefore = 60 * time.Millisecond

// soon is how long before its end a lease counts as ended: a tick that is due may
// come up to one TickEvery early.
const soon = int64(giveBackBefore + TickEvery)

// mostTokens bounds what a generation of leases holds, far above the largest
// max_lease.
const mostTokens = 1 << 30

// lease is tokens paid for in the store, of one generation.
type lease struct {
	generation int64
	endsNS     int64 // when it may no longer be spent
	tokens     int32 // still to be spent
	spent      int32 // since the last report
	back       int32 // to be returned
}

// held is the leases of one bucket: of two generations at most, the one that ends
// first, and is spent first, before the other.
type held [2]lease

// tokens returns what may be spent now.
func (h *held) tokens(now int64) int64 {
	var sum int64
	for i := range h {
		if now < h[i].endsNS {
			sum += int64(h[i].tokens)
		}
	}
	return sum
}

// spend takes cost, which tokens said is there.
func (h *held) spend(now, cost int64) {
	for i := range h {
		l := &h[i]
		if now >= l.endsNS {
			continue
		}
		n := min(cost, int64(l.tokens))
		l.tokens -= int32(n)
		l.spent += int32(n)
		cost -= n
	}
}

// refund undoes a spend of which nothing came: as far as its lease still lives
// and has not been reported, the newest first.
func (h *held) refund(now, cost int64) {
	for i := len(h) - 1; i >= 0; i-- {
		l := &h[i]
		n := int32(min(cost, int64(l.spent)))
		l.spent -= n
		cost -= int64(n)
		if now < l.endsNS {
			l.tokens += n
		} else {
			l.back += n
		}
	}
}

// place returns where a lease of a generation goes that ends at endsNS: to the
// tokens of its own generation, or in the place of what ends first; -1 where both
// others end later: it came so late that the store has written it off. Ends, not
// generations, tell what is late: a store's clock may step back.
func (h *held) place(generation, endsNS int64) int {
	switch {
	case generation == h[1].generation && h[1].endsNS > 0:
		return 1
	case generation == h[0].generation && h[0].endsNS > 0:
		return 0
	case endsNS < h[0].endsNS:
		return -1
	default:
		return 0
	}
}

// grant adds a lease that may be spent until endsNS.
func (h *held) grant(generation, tokens, endsNS int64) {
	at := h.place(generation, endsNS)
	if at < 0 {
		return
	}
	l := &h[at]
	if l.generation != generation || l.endsNS == 0 {
		*l = lease{generation: generation, endsNS: endsNS}
	}
	l.tokens = int32(min(int64(l.tokens)+tokens, mostTokens))
	// Leases of one generation end together, but later ones may be shorter.
	l.endsNS = min(l.endsNS, endsNS)
	if h[0].endsNS > h[1].endsNS {
		h[0], h[1] = h[1], h[0]
	}
}

// expire moves what has ended, or soon will, to what goes back.
func (h *held) expire(now int64) {
	for i := range h {
		if l := &h[i]; l.tokens > 0 && now >= l.endsNS-soon {
			l.back += l.tokens
			l.tokens = 0
		}
	}
}

// release gives up all tokens: they go back with the next report.
func (h *held) release() {
	for i := range h {
		h[i].back += h[i].tokens
		h[i].tokens = 0
	}
}

// report takes out what the store should know. It is handed out once: a report
// that was lost must not be sent again, since it may have arrived.
func (h *held) report(dst []store.Report) []store.Report {
	for i := range h {
		l := &h[i]
		if l.spent == 0 && l.back == 0 {
			continue
		}
		dst = append(dst, store.Report{Generation: l.generation, Spent: int64(l.spent), Back: int64(l.back)})
		l.spent, l.back = 0, 0
	}
	return dst
}

// idle reports whether there is nothing to spend and nothing to tell.
func (h *held) idle() bool {
	for i := range h {
		if h[i].tokens != 0 || h[i].spent != 0 || h[i].back != 0 {
			return false
		}
	}
	return true
}
