package envoyconfig

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// AttrPath is the attribute that holds a descriptor's keys in order.
const AttrPath = "envoy.path"

// Empty stands for an entry's empty value: an empty attribute has no identity, and
// such requests count together there.
const Empty = "(empty)"

// AppendPath appends the next key of a path to dst.
func AppendPath(dst []byte, key string) []byte {
	if len(dst) > 0 {
		dst = append(dst, '/')
	}
	const digits = "0123456789ABCDEF"
	for i := range len(key) {
		if c := key[i]; c > ' ' && c < 0x7f && c != '%' && c != '/' && c != '*' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// Path returns the keys joined by "/", each with bytes other than visible ASCII, and
// "%", "/" and "*", as %XX.
func Path(keys []string) string {
	var path []byte
	for _, key := range keys {
		path = AppendPath(path, key)
	}
	return string(path)
}

// AttributeName returns the attribute of an entry's value: its key. A key that cannot
// name an attribute (with blanks, control characters or bytes that are no UTF-8) is
// escaped as in [Path]. Where that is taken, by an entry before it, it is name#2, and
// so on.
func AttributeName(key string, taken func(name string) bool) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		key = Path([]string{key})
	}
	if !taken(key) && key != AttrPath {
		return key
	}
	for n := 2; ; n++ {
		if name := key + "#" + strconv.Itoa(n); !taken(name) {
			return name
		}
	}
}

// AttributeNames returns the name of each entry's attribute; see [AttributeName].
func AttributeNames(keys []string) []string {
	out := make([]string, len(keys))
	taken := map[string]bool{}
	for i, key := range keys {
		out[i] = AttributeName(key, func(name string) bool { return taken[name] })
		taken[out[i]] = true
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
