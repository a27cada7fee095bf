package storetest

import (
	"fmt"
	"strings"

	"github.com/tallygate/tallygate/store"
)

// keyCases are promises about names: no two of them ever meet.
func keyCases() []testCase {
	return []testCase{
		{name: "KEY-01 no separator makes two names alike", run: noSeparator},
		{name: "KEY-04 keys of 4 KiB differ in their last byte", run: longKeys},
		{name: "KEY-05 a thousand rules of one key are distinct", run: thousandRules},
		{name: "odd bytes are keys like others", run: oddBytes},
		{name: "domains are apart", run: domainsApart},
	}
}

// apart fails unless every bucket has a token of its own.
func (s *subject) apart(buckets ...store.Bucket) {
	s.Helper()
	for _, b := range buckets {
		op := s.op("", slowBucket(1), 1)
		op.Bucket = b
		if !s.one(op).OK {
			s.Errorf("%.80q shares its bucket with another", b)
		}
	}
}

func noSeparator(s *subject) {
	k := s.key
	var buckets []store.Bucket
	for _, sep := range []string{":", "|", "/", "_", "\x00", "\n", " ", "\\", ",", "%", ".", "}", "{"} {
		buckets = append(buckets,
			store.Bucket{Domain: "d", Rule: "a" + sep + "b", Key: k},
			store.Bucket{Domain: "d", Rule: "a", Key: "b" + sep + k},
			store.Bucket{Domain: "d" + sep + "a", Rule: "b", Key: k},
		)
	}
	s.apart(buckets...)
}

func longKeys(s *subject) {
	long := s.key + strings.Repeat("x", 4095-len(s.key))
	s.apart(
		store.Bucket{Domain: "d", Rule: "r", Key: long + "1"},
		store.Bucket{Domain: "d", Rule: "r", Key: long + "2"},
		store.Bucket{Domain: "d", Rule: "r", Key: long},
	)
}

func thousandRules(s *subject) {
	for i := range 1000 {
		s.apart(store.Bucket{Domain: "d", Rule: fmt.Sprint("route-", i), Key: s.key})
	}
}

func oddBytes(s *subject) {
	k := s.key
	keys := []string{
		"", "{}", "{", "}", "{" + k + "}", "{a}b}", "a}b{c", "\x00", "\x00\x00", "\n", "\r\n", "\xff\xfe", "\xc3\x28", "é", "e\u0301",
		" ", "  ", "%00", "%", `"`, "'", "\\", "*", "?", "[a]", "..", "NaN", "-1",
	}
	for i := range keys {
		keys[i] = k + keys[i]
	}
	buckets := make([]store.Bucket, 0, len(keys))
	for _, key := range keys {
		buckets = append(buckets, store.Bucket{Domain: "d", Rule: "r", Key: key})
	}
	s.apart(buckets...)
	s.apart(store.Bucket{Domain: "d", Rule: "r", Key: "{" + k + "}x"}, store.Bucket{Domain: "d", Rule: "r", Key: "x{" + k + "}"})
}

func domainsApart(s *subject) {
	s.apart(
		store.Bucket{Domain: "a", Rule: "r", Key: s.key},
		store.Bucket{Domain: "b", Rule: "r", Key: s.key},
		store.Bucket{Domain: "", Rule: "r", Key: s.key},
	)
}
