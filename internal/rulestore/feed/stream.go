package feed

import (
	"net/http"
	"strconv"
	"time"
)

// stream sends an event for each change, until the client goes or the hub closes.
// The data of an event is what a poll since the one before would have answered.
func (h *Hub) stream(w http.ResponseWriter, r *http.Request, since int64) {
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no") // NGINX would hold events back
	beat := time.NewTicker(h.cfg.Heartbeat)
	defer beat.Stop()
	ok := h.event(w, []byte(": changes of rules\n\n"))
	for ok && r.Context().Err() == nil {
		select {
		case <-h.closing:
			return
		default:
		}
		s := h.next(r, since, beat.C)
		if s.set.Revision == since {
			ok = h.event(w, []byte(":\n\n"))
			continue
		}
		end, err := s.answer(since)
		if err != nil {
			h.cfg.Log.Error("the rules cannot be encoded", "error", err)
			return
		}
		since = s.set.Revision
		ok = h.event(w, []byte("id: "+strconv.FormatInt(since, 10)+"\nevent: change\ndata: "), h.start(s), end[1:], []byte("\n\n"))
	}
}

// event writes and sends at once.
func (h *Hub) event(w http.ResponseWriter, parts ...[]byte) bool {
	return h.write(w, parts...) && http.NewResponseController(w).Flush() == nil
}
