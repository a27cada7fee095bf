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

// held is the leases of one bucket, tokens paid for in the store: of two generations
// at most, the one that ends first, and is spent first, before the other. What a hit
// reads comes first, of both.
type held struct {
	endsNS [2]int64 // when one may no longer be spent
	left   [2]int32 // still to be spent
	spent  [2]int32 // since the last report

	generation [2]int64
	back       [2]int32 // to be returned
}

// tokens returns what may be spent now.
func (h *held) tokens(now int64) int64 {
	var sum int64
	for i := range h.endsNS {
		if now < h.endsNS[i] {
			sum += int64(h.left[i])
		}
	}
	return sum
}

// spend takes cost, which tokens said is there.
func (h *held) spend(now, cost int64) {
	for i := range h.endsNS {
		if now >= h.endsNS[i] {
			continue
		}
		n := min(cost, int64(h.left[i]))
		h.left[i] -= int32(n)
		h.spent[i] += int32(n)
		cost -= n
	}
}

// refund undoes a spend of which nothing came: as far as its lease still lives
// and has not been reported, the newest first.
func (h *held) refund(now, cost int64) {
	for i := len(h.spent) - 1; i >= 0; i-- {
		n := int32(min(cost, int64(h.spent[i])))
		h.spent[i] -= n
		cost -= int64(n)
		if now < h.endsNS[i] {
			h.left[i] += n
		} else {
			h.back[i] += n
		}
	}
}

// place returns where a lease of a generation goes that ends at endsNS: to the
// tokens of its own generation, or in the place of what ends first; -1 where both
// others end later: it came so late that the store has written it off. Ends, not
// generations, tell what is late: a store's clock may step back.
func (h *held) place(generation, endsNS int64) int {
	switch {
	case generation == h.generation[1] && h.endsNS[1] > 0:
		return 1
	case generation == h.generation[0] && h.endsNS[0] > 0:
		return 0
	case endsNS < h.endsNS[0]:
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
	if h.generation[at] != generation || h.endsNS[at] == 0 {
		h.generation[at], h.endsNS[at] = generation, endsNS
		h.left[at], h.spent[at], h.back[at] = 0, 0, 0
	}
	h.left[at] = int32(min(int64(h.left[at])+tokens, mostTokens))
	// Leases of one generation end together, but later ones may be shorter.
	h.endsNS[at] = min(h.endsNS[at], endsNS)
	if h.endsNS[0] > h.endsNS[1] {
		h.swap()
	}
}

// swap has the two change places.
func (h *held) swap() {
	h.endsNS[0], h.endsNS[1] = h.endsNS[1], h.endsNS[0]
	h.left[0], h.left[1] = h.left[1], h.left[0]
	h.spent[0], h.spent[1] = h.spent[1], h.spent[0]
	h.generation[0], h.generation[1] = h.generation[1], h.generation[0]
	h.back[0], h.back[1] = h.back[1], h.back[0]
}

// expire moves what has ended, or soon will, to what goes back.
func (h *held) expire(now int64) {
	for i, tokens := range h.left {
		if tokens > 0 && now >= h.endsNS[i]-soon {
			h.back[i] += tokens
			h.left[i] = 0
		}
	}
}

// release gives up all tokens: they go back with the next report.
func (h *held) release() {
	for i, tokens := range h.left {
		h.back[i] += tokens
		h.left[i] = 0
	}
}

// report takes out what the store should know. It is handed out once: a report
// that was lost must not be sent again, since it may have arrived.
func (h *held) report(dst []store.Report) []store.Report {
	for i, generation := range h.generation {
		if h.spent[i] == 0 && h.back[i] == 0 {
			continue
		}
		dst = append(dst, store.Report{Generation: generation, Spent: int64(h.spent[i]), Back: int64(h.back[i])})
		h.spent[i], h.back[i] = 0, 0
	}
	return dst
}

// idle reports whether there is nothing to spend and nothing to tell.
func (h *held) idle() bool {
	none := [2]int32{}
	return h.left == none && h.spent == none && h.back == none
}
