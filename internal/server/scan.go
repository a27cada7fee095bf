package server

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tallygate/tallygate"
)

// scanner reads one JSON text from front to back, strictly: RFC 8259 and nothing
// more, valid UTF-8, paired surrogates, bounded depth. encoding/json would
// replace bad UTF-8, take the last of two members of one name and match names
// in any case, each of which lets two readers see two different checks.
type scanner struct {
	data []byte
	pos  int
	// text is where strings with escapes are unescaped.
	text []byte
}

// maxDepth bounds nesting of a value that is skipped. A check nests four deep.
const maxDepth = 16

func (s *scanner) reset(data []byte) { s.data, s.pos = data, 0 }

// peek returns the next byte that is no white space, or 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// expect reads the one byte c.
func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c || s.pos == len(s.data) {
		return s.malformed("%q", c)
	}
	s.pos++
	return nil
}

// end makes sure that nothing follows.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.malformed("the end")
	}
	return nil
}

// malformed says what was expected and what is there instead.
func (s *scanner) malformed(format string, args ...any) error {
	found := "the end"
	if s.pos < len(s.data) {
		found = fmt.Sprintf("%q", s.data[s.pos:s.pos+1])
	}
	return &tallygate.Error{
		Code:    tallygate.CodeBadRequest,
		Message: fmt.Sprintf("malformed JSON at byte %d: found %s, expected %s", s.pos, found, fmt.Sprintf(format, args...)),
	}
}

// object calls member with the name of each member; member reads the value. The
// name is valid until the next string is read.
func (s *scanner) object(member func(name []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		name, err := s.string()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.expect('}')
		}
		s.pos++
	}
}

// array calls element for each element; element reads it.
func (s *scanner) array(element func(i int) error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.expect(']')
		}
		s.pos++
	}
}

// string reads a string. The result is valid until the next one is read.
func (s *scanner) string() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.pos
	ascii := true
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			text := s.data[start:s.pos]
			if !ascii && !utf8.Valid(text) {
				s.pos = start
				return nil, s.malformed("a string of valid UTF-8")
			}
			s.pos++
			return text, nil
		case c == '\\':
			s.pos = start
			return s.escaped()
		case c < ' ':
			return nil, s.malformed("a string without control characters")
		case c >= utf8.RuneSelf:
			ascii = false
		}
		s.pos++
	}
	return nil, s.malformed(`'"'`)
}

// escaped reads the rest of a string that holds escapes.
func (s *scanner) escaped() ([]byte, error) {
	start := s.pos
	s.text = s.text[:0]
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			if !utf8.Valid(s.text) {
				s.pos = start
				return nil, s.malformed("a string of valid UTF-8")
			}
			return s.text, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.malformed("a string without control characters")
		default:
			s.text = append(s.text, c)
			s.pos++
		}
	}
	return nil, s.malformed(`'"'`)
}

// escape reads one escape into text.
func (s *scanner) escape() error {
	s.pos++
	if s.pos == len(s.data) {
		return s.malformed("an escape")
	}
	c := s.data[s.pos]
	if c == 'u' {
		s.pos++
		return s.unicode()
	}
	at := bytes.IndexByte([]byte(`"\/bfnrt`), c)
	if at < 0 {
		return s.malformed("an escape")
	}
	s.text = append(s.text, "\"\\/\b\f\n\r\t"[at])
	s.pos++
	return nil
}

// unicode reads the digits of a \u escape, and of its second half if it has one.
func (s *scanner) unicode() error {
	r, err := s.hex()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		if !bytes.HasPrefix(s.data[s.pos:], []byte(`\u`)) {
			return s.malformed("the second half of a surrogate pair")
		}
		s.pos += 2
		second, err := s.hex()
		if err != nil {
			return err
		}
		if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
			return s.malformed("a surrogate pair before this")
		}
	}
	s.text = utf8.AppendRune(s.text, r)
	return nil
}

func (s *scanner) hex() (rune, error) {
	var r rune
	for range 4 {
		if s.pos == len(s.data) {
			return 0, s.malformed("a hexadecimal digit")
		}
		at := bytes.IndexByte([]byte("0123456789abcdef"), s.data[s.pos]|0x20)
		if at < 0 {
			return 0, s.malformed("a hexadecimal digit")
		}
		r = r<<4 | rune(at)
		s.pos++
	}
	return r, nil
}

// number reads the text of a number.
func (s *scanner) number() ([]byte, error) {
	s.peek()
	start := s.pos
	if s.at('-') {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if !s.digits() {
		return nil, s.malformed("a digit")
	}
	if s.at('.') {
		s.pos++
		if !s.digits() {
			return nil, s.malformed("a digit")
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return nil, s.malformed("a digit")
		}
	}
	return s.data[start:s.pos], nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

// digits reads digits and reports whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// skip reads any value and returns its text.
func (s *scanner) skip(depth int) ([]byte, error) {
	var err error
	c := s.peek()
	start := s.pos
	switch {
	case depth >= maxDepth:
		err = s.malformed("at most %d levels", maxDepth)
	case c == '{':
		err = s.object(func([]byte) error { _, err := s.skip(depth + 1); return err })
	case c == '[':
		err = s.array(func(int) error { _, err := s.skip(depth + 1); return err })
	case c == '"':
		_, err = s.string()
	case c == '-' || c >= '0' && c <= '9':
		_, err = s.number()
	default:
		err = s.literal()
	}
	return s.data[start:s.pos], err
}

// literal reads true, false or null.
func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
			s.pos += len(word)
			return nil
		}
	}
	return s.malformed("a value")
}
