// Package token is who may use the admin API: names, roles and hashes of tokens in
// a file. The file never holds a token, and nothing here ever shows one.
//
//	tokens:
//	  - name: kim
//	    role: editor
//	    domain: public-api
//	    sha256: 64 hex digits
//
// A [File] follows its file without a goroutine; see package newest.
package token

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tallygate/tallygate/internal/newest"
)

// Role is what a token may do.
type Role string

// The roles. Each of the first three may do what those before it may.
const (
	// Viewer reads.
	Viewer Role = "viewer"
	// Editor changes rules, candidates and overrides, and resets keys.
	Editor Role = "editor"
	// Admin may do everything, and look into the process.
	Admin Role = "admin"
	// Pod follows the rules and reports, Check asks for checks; nothing else.
	Pod   Role = "pod"
	Check Role = "check"
)

// Token is who shows a token.
type Token struct {
	// Name is who: it stands in the audit.
	Name string
	Role Role
	// Domain bounds it to the rules of one domain; "" means all.
	Domain string
}

// Bounds of a file: each token is compared with each request's.
const (
	MaxTokens    = 1_000
	maxFileBytes = 1 << 20
	maxNameBytes = 128
	prefix       = "tg_"
)

// New returns a new token of 256 random bits, and the hash to put into the file.
func New() (token, hash string) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails
	token = prefix + base64.RawURLEncoding.EncodeToString(bits[:])
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// Set is the tokens of a file. It is immutable.
type Set struct{ entries []entry }

type entry struct {
	Token
	sum [sha256.Size]byte
}

// Find returns whose token it is. It takes the same time for all.
func (s *Set) Find(shown string) (Token, bool) {
	sum := sha256.Sum256([]byte(shown))
	found := -1
	for i := range s.entries {
		// All of them, each to its end: how long it takes tells nothing.
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], s.entries[i].sum[:]), i, found)
	}
	if found < 0 {
		return Token{}, false
	}
	return s.entries[found].Token, true
}

// written is a token as it stands in the file.
type written struct {
	Name   string `yaml:"name"`
	Role   Role   `yaml:"role"`
	Domain string `yaml:"domain"`
	SHA256 string `yaml:"sha256"`
}

// Parse reads the text of a file, strictly.
func Parse(text []byte) (*Set, error) {
	var file struct {
		Tokens []written `yaml:"tokens"`
	}
	err := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(&file)
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		// Without the source: somebody may have put a token there.
		return nil, errors.New(place(err) + "is not a list of tokens; see docs/admin-api.md")
	}
	if len(file.Tokens) == 0 || len(file.Tokens) > MaxTokens {
		return nil, fmt.Errorf("there are 1 to %d tokens in a file, not %d", MaxTokens, len(file.Tokens))
	}
	set := &Set{}
	names, sums := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, w := range file.Tokens {
		e, err := w.entry()
		switch {
		case err != nil:
		case names[e.Name]:
			err = errors.New("name: another token has it; names stand in the audit, give each its own")
		case sums[e.sum]:
			err = errors.New("sha256: another token has it")
		}
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		names[e.Name], sums[e.sum] = true, true
		set.entries = append(set.entries, e)
	}
	return set, nil
}

// place returns where in the file a fault is, and nothing of what stands there.
func place(err error) string {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return "the file "
	}
	p := at.GetToken().Position
	return fmt.Sprintf("line %d, column %d: ", p.Line, p.Column)
}

func (w written) entry() (entry, error) {
	e := entry{Token: Token{Name: w.Name, Role: w.Role, Domain: w.Domain}}
	switch {
	case !isID(w.Name):
		return e, fmt.Errorf("name: 1 to %d of A-Z a-z 0-9 . _ - are a name", maxNameBytes)
	case w.Domain != "" && !isID(w.Domain):
		return e, fmt.Errorf("domain: 1 to %d of A-Z a-z 0-9 . _ - are a domain", maxNameBytes)
	}
	switch w.Role {
	case Viewer, Editor, Admin:
	case Check:
		if w.Domain != "" {
			return e, errors.New("domain: a check token asks for checks of all domains; leave it out")
		}
	case Pod:
		if w.Domain != "" {
			return e, errors.New("domain: a pod needs the rules of all domains; leave it out")
		}
	default:
		return e, errors.New("role: it is viewer, editor, admin, pod or check")
	}
	sum, err := hex.DecodeString(w.SHA256)
	if err != nil || len(sum) != len(e.sum) {
		return e, errors.New("sha256: it is the 64 hex digits of the token's SHA-256, not the token")
	}
	copy(e.sum[:], sum)
	return e, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= maxNameBytes && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	})
}

// Config says which file.
type Config struct {
	// Path is the file. Required.
	Path string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told of a file that cannot be used; nil means none.
	Log *slog.Logger
}

// File is the tokens of a file as it is now: within a second after it changed. A
// file that cannot be used changes nothing, so that a slip locks nobody out. Safe
// for concurrent use.
type File struct{ set *newest.Value[*Set] }

// Open reads the file for the first time.
func Open(cfg Config) (*File, error) {
	set, err := newest.New(newest.Config[*Set]{
		Files: []string{cfg.Path}, Now: cfg.Now, Log: cfg.Log,
		Load: func() (*Set, error) { return read(cfg.Path) },
	})
	if err != nil {
		return nil, err
	}
	return &File{set}, nil
}

// Find returns whose token it is.
func (f *File) Find(shown string) (Token, bool) { return f.set.Get().Find(shown) }

func read(path string) (*Set, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s: above %d bytes", path, maxFileBytes)
	}
	set, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}
