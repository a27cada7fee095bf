package envoyconfig

import "strings"

// ambiguousIn returns the first node of a domain that entries of another key can meet,
// because key and value are compared as one text; nil for none.
func ambiguousIn(d *Domain) *Descriptor {
	var first *Descriptor
	each(d.Descriptors, func(n *Descriptor) {
		if first == nil && n.otherReading() != "" {
			first = n
		}
	})
	return first
}

// otherReading returns another entry that makes the node's text, "" if there is none.
func (d *Descriptor) otherReading() string {
	text, _, pattern := strings.Cut(d.composite(), "*")
	if pattern {
		return "a key that starts with " + quote(text)
	}
	if d.Value != "" { // found by an entry's key alone, as a default would be
		return "key " + quote(text) + " with any value"
	}
	if i := strings.IndexByte(text[min(1, len(text)):], '_'); i >= 0 {
		return "key " + quote(text[:i+1]) + " with value " + quote(text[i+2:])
	}
	return ""
}

// clash is a node that takes requests from another key of its level.
type clash struct {
	node *Descriptor
	key  string // the key of whom it takes them
	at   Place
}

// clashes returns the nodes of a level whose text key_value may be that of an entry
// of another key of the level.
func clashes(nodes []*Descriptor) []clash {
	keys := map[string]Place{}
	var order []string
	for _, n := range nodes {
		if _, ok := keys[n.Key]; !ok {
			keys[n.Key] = n.At
			order = append(order, n.Key)
		}
	}
	var out []clash
	for _, n := range nodes {
		text, _, pattern := strings.Cut(n.composite(), "*")
		if pattern {
			const most = 1_000 // more keys in one level are data, not names
			for _, key := range order[:min(len(order), most)] {
				if key != n.Key && strings.HasPrefix(key+"_", text) {
					out = append(out, clash{n, key, keys[key]})
				}
			}
		}
		for i := range len(text) + 1 {
			if i < len(text) && text[i] != '_' || i == len(text) && pattern {
				continue
			}
			if at, ok := keys[text[:i]]; ok && text[:i] != n.Key {
				out = append(out, clash{n, text[:i], at})
			}
		}
	}
	return out
}
