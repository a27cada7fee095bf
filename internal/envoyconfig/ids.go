package envoyconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tallygate/tallygate/rules"
)

// namer gives rules their ids.
type namer struct{ taken map[string]bool }

// id joins the parts by dots. What cannot stand in an id becomes "_" (a "*", "any"),
// and then, or where the id is too long or taken, 8 hex digits of the parts follow: an
// id then depends on its own parts only, and survives changes elsewhere in the file.
func (n *namer) id(parts ...string) string {
	var b strings.Builder
	lossy := false
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('.')
		}
		s, changed := plain(part)
		lossy = lossy || changed
		b.WriteString(s)
	}
	id, sum := b.String(), digest(parts)
	const tail = 9 // "-" and 8 digits
	if lossy || n.taken[id] || len(id) > rules.MaxIDBytes {
		id = id[:min(len(id), rules.MaxIDBytes-tail)] + "-" + sum[:tail-1]
	}
	for more := tail; n.taken[id]; more++ { // two of 2^32: never seen, and no reason to fail
		id = id[:min(len(id), rules.MaxIDBytes-more)] + "-" + sum[:more-1]
	}
	n.taken[id] = true
	return id
}

// plain returns a part as it may stand in an id, and whether another part may look the
// same then.
func plain(part string) (string, bool) {
	var b strings.Builder
	lossy := false
	for _, c := range part {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.':
			b.WriteRune(c)
		case c == '*':
			b.WriteString("any")
			lossy = true
		default:
			b.WriteByte('_')
			lossy = true
		}
	}
	return b.String(), lossy
}

func digest(parts []string) string {
	sum := sha256.Sum256([]byte(Path(parts)))
	return hex.EncodeToString(sum[:])
}

// domain returns the domain's name here.
func (n *namer) domain(name string) string {
	s, lossy := plain(name)
	const tail = 9
	if lossy || len(s) > rules.MaxIDBytes {
		s = s[:min(len(s), rules.MaxIDBytes-tail)] + "-" + digest([]string{name})[:tail-1]
	}
	return s
}
