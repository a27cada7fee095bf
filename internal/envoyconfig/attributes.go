package envoyconfig

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape writes a key so that it can stand in a path and in a pattern.
func escape(b *strings.Builder, key string) {
	for i := range len(key) {
		if c := key[i]; c > ' ' && c < 0x7f && c != '%' && c != '/' && c != '*' {
			b.WriteByte(c)
		} else {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
}

// AttrPath is the attribute that holds a descriptor's keys in order.
const AttrPath = "envoy.path"

// Empty stands for an entry's empty value: an empty attribute has no identity, and
// such requests count together there.
const Empty = "(empty)"

// Path returns the keys joined by "/", each with bytes other than visible ASCII, and
// "%", "/" and "*", as %XX.
func Path(keys []string) string {
	var b strings.Builder
	for i, key := range keys {
		if i > 0 {
			b.WriteByte('/')
		}
		escape(&b, key)
	}
	return b.String()
}

// AttributeNames returns the attribute of each entry's value: its key. A key that
// cannot name an attribute (with blanks, control characters or bytes that are no UTF-8)
// is escaped as in [Path]. The second entry of a name is name#2, and so on.
func AttributeNames(keys []string) []string {
	out := make([]string, len(keys))
	taken := map[string]bool{AttrPath: true}
	for i, key := range keys {
		if !utf8.ValidString(key) || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			key = Path([]string{key})
		}
		name := key
		for n := 2; taken[name]; n++ {
			name = key + "#" + strconv.Itoa(n)
		}
		taken[name] = true
		out[i] = name
	}
	return out
}

// Attributes returns what a descriptor's entries are to rules: each value under its
// name of [AttributeNames], [Empty] for an empty one, and the keys as [AttrPath].
func Attributes(entries []Entry) map[string]string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	out := make(map[string]string, len(entries)+1)
	for i, name := range AttributeNames(keys) {
		out[name] = entries[i].Value
		if entries[i].Value == "" {
			out[name] = Empty
		}
	}
	out[AttrPath] = Path(keys)
	return out
}
