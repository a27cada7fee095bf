package identity

import (
	"strconv"
	"strings"
)

// A key is one identity value as it is, so that overrides, logs and people see
// what they wrote. Everything else starts with a NUL byte, which tells it apart:
//
//	NUL 3:abc 5:xy\x00zz   several values, or one that starts with NUL itself
//	NUL a 203.0.113.9      a caller without identity, counted by address
//	NUL o                  what keys share that have no bucket of their own
const (
	markByte      = "\x00"
	anonymousMark = markByte + "a"
)

// OverflowKey is the key that invented identities share when there are too many of
// them. No identity value and no caller has it.
const OverflowKey = markByte + "o"

// Key returns the key of identity values, in the rule's order. It is injective:
// other values, or the same bytes split otherwise, give another key. One value
// is its own key. Values are not empty; that is for the caller to check.
func Key(parts []string) string {
	if len(parts) == 1 && !strings.HasPrefix(parts[0], markByte) {
		return parts[0]
	}
	if len(parts) == 0 {
		return ""
	}
	size := len(markByte)
	for _, p := range parts {
		size += len(p) + 8
	}
	out := append(make([]byte, 0, size), markByte...)
	for _, p := range parts {
		out = strconv.AppendInt(out, int64(len(p)), 10)
		out = append(out, ':')
		out = append(out, p...)
	}
	return string(out)
}

// AnonymousKey returns the key of a caller that a rule cannot identify and
// counts by its canonical address instead. No identity value has such a key:
// else a client could name itself after an address and spend that one's budget.
func AnonymousKey(ip string) string { return anonymousMark + ip }

// Parts returns the values a key was made of and whether it is the key of an
// anonymous caller; its one part is then the address. ok is false for a string
// that [Key] and [AnonymousKey] never return.
func Parts(key string) (parts []string, anonymous, ok bool) {
	if ip, found := strings.CutPrefix(key, anonymousMark); found {
		return []string{ip}, true, true
	}
	rest, found := strings.CutPrefix(key, markByte)
	if !found {
		return []string{key}, false, true
	}
	for rest != "" {
		digits, tail, found := strings.Cut(rest, ":")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 0 || n > len(tail) || strconv.Itoa(n) != digits {
			return nil, false, false
		}
		parts, rest = append(parts, tail[:n]), tail[n:]
	}
	if len(parts) == 0 || len(parts) == 1 && !strings.HasPrefix(parts[0], markByte) {
		return nil, false, false
	}
	return parts, false, true
}
