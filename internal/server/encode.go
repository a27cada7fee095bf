package server

import (
	"strconv"
	"unicode/utf8"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/headers"
)

// appendVerdict appends the JSON of a verdict and its headers. It writes by hand
// since this is most of what answering a check costs.
func appendVerdict(dst []byte, v *tallygate.Verdict, fields *headers.Fields) []byte {
	dst = append(dst, `{"verdict":`...)
	dst = appendAllow(dst, v.Allow)
	dst = appendText(dst, `,"denied_by":`, v.DeniedBy)
	dst = appendText(dst, `,"reason":`, string(v.Reason))
	dst = appendText(dst, `,"degraded":`, string(v.Degraded))
	if v.RetryMS > 0 {
		dst = appendNumber(dst, `,"retry_ms":`, v.RetryMS)
	}
	dst = append(dst, `,"entries":[`...)
	for i := range v.Entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendEntry(dst, &v.Entries[i])
	}
	dst = append(dst, `],"headers":{`...)
	first := true
	for name, value := range fields.All() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = appendQuoted(dst, value)
	}
	return append(dst, `}}`...)
}

func appendEntry(dst []byte, e *tallygate.EntryVerdict) []byte {
	dst = append(dst, `{"rule":`...)
	dst = appendQuoted(dst, e.Rule)
	dst = append(dst, `,"verdict":`...)
	dst = appendAllow(dst, e.Allow)
	if e.Shadow {
		dst = append(dst, `,"mode":"shadow"`...)
	}
	if e.Counted {
		dst = appendNumber(dst, `,"limit":`, e.Limit)
		dst = appendNumber(dst, `,"remaining":`, e.Remaining)
	}
	if e.RetryMS > 0 {
		dst = appendNumber(dst, `,"retry_ms":`, e.RetryMS)
	}
	if e.Counted {
		dst = appendNumber(dst, `,"reset_ms":`, e.ResetMS)
	}
	dst = appendText(dst, `,"reason":`, string(e.Reason))
	dst = appendText(dst, `,"source":`, string(e.Source))
	return append(dst, '}')
}

func appendAllow(dst []byte, allow bool) []byte {
	if allow {
		return append(dst, `"allow"`...)
	}
	return append(dst, `"deny"`...)
}

// appendText appends a member whose value is text, unless that is empty.
func appendText(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return appendQuoted(append(dst, name...), text)
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

// appendQuoted appends text as a JSON string; bytes that are no UTF-8 become
// U+FFFD, and < > & are escaped in case someone shows the answer in a page.
func appendQuoted[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if !plain(c) {
				dst = append(dst, text[start:i]...)
				dst = appendEscape(dst, c)
				start = i + 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, text[start:i]...)
			dst = append(dst, "\ufffd"...)
			start = i + 1
		}
		i += size
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

// plain reports whether an ASCII byte stands for itself in a JSON string.
func plain(c byte) bool {
	return c >= ' ' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' && c != 0x7f
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	default:
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
	}
}
