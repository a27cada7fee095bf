package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// accepts reports whether the scanner takes text as one whole JSON value.
func accepts(text []byte) bool {
	var s scanner
	s.reset(text)
	if _, err := s.skip(0); err != nil {
		return false
	}
	return s.end() == nil
}

func TestScanner(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`: true, ` [ ] `: true, `{"a":[1,-0,1.5e+3,"x",true,false,null]}`: true, `"\u00e4\ud83d\ude00\/"`: true,
		``: false, ` `: false, `{`: false, `[1,]`: false, `{"a"}`: false, `{"a":1,}`: false, `{a:1}`: false, `'a'`: false,
		`01`: false, `1.`: false, `.1`: false, `1e`: false, `+1`: false, `- 1`: false, `NaN`: false, `nul`: false, `nulll`: false,
		`"\x"`: false, `"\u12g4"`: false, `"\u12"`: false, `"\ud800"`: false, `"\ud800\u0041"`: false, `"\udc00\ud800"`: false,
		`"` + "\t" + `"`: false, `"\`: false, `"\"`: false, "\"\xc3\"": false, "\"\\n\xc3\"": false, `"a" "b"`: false, "\ufeff1": false,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth):     true,
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1): false,
	} {
		if got := accepts([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// What the scanner takes, encoding/json takes and reads as the same strings; and
// what it refuses, encoding/json refuses too, or one of our stricter rules does.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{`{"a":["\u00e4\ud83d\ude00",1.5e3,null]}`, `"\ud800"`, "\"\xff\"", `[[[[]]]]`, `-0`, `1e400`, ` {"\n":{}} `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := accepts(text)
		valid := json.Valid(text)
		if got && !valid {
			t.Fatalf("accepted %q, which is no JSON", text)
		}
		strict := utf8.Valid(text) && !bytes.Contains(bytes.ToLower(text), []byte(`\ud`)) && depth(text) <= maxDepth
		if !got && valid && strict {
			t.Fatalf("refused %q", text)
		}
		var want string
		if got && json.Unmarshal(text, &want) == nil && text[len(text)-1] == '"' {
			var s scanner
			s.reset(text)
			if value, err := s.string(); err != nil || string(value) != want {
				t.Fatalf("%q is %q, %v; want %q", text, value, err, want)
			}
		}
	})
}

// depth is at least as deep as text nests.
func depth(text []byte) int {
	return bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{"))
}

// Whatever the text, appendQuoted writes a JSON string of it, with replacement
// characters for what is no UTF-8.
func FuzzAppendQuoted(f *testing.F) {
	for _, seed := range []string{"", "plain", "\"\\\n\r\t\x00\x7f<>&", "ü😀\u2028", "\xff\xc3", "\xe2\x82"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, quoted := range [][]byte{appendQuoted(nil, text), appendQuoted(nil, []byte(text))} {
			var got string
			if err := json.Unmarshal(quoted, &got); err != nil || got != string([]rune(text)) {
				t.Fatalf("%q became %s: %q, %v", text, quoted, got, err)
			}
		}
	})
}
