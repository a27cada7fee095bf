package token_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/admin/token"
)

func TestNew_isRandomAndHashed(t *testing.T) {
	t.Parallel()
	first, hash := token.New()
	second, _ := token.New()
	if first == second || !strings.HasPrefix(first, "tg_") || len(first) != 3+43 {
		t.Errorf("got %q and %q", first, second)
	}
	if sum := sha256.Sum256([]byte(first)); hex.EncodeToString(sum[:]) != hash {
		t.Errorf("got hash %s", hash)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	plain, hash := token.New()
	other, otherHash := token.New()
	set, err := token.Parse(fmt.Appendf(nil, "# who\ntokens:\n  - name: kim\n    role: editor\n    domain: public-api\n    sha256: %s\n  - {name: p, role: pod, sha256: %s}\n", hash, strings.ToUpper(otherHash)))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := set.Find(plain); !ok || got != (token.Token{Name: "kim", Role: token.Editor, Domain: "public-api"}) {
		t.Errorf("got %+v, %t", got, ok)
	}
	if got, ok := set.Find(other); !ok || got.Role != token.Pod {
		t.Errorf("got %+v, %t", got, ok)
	}
	for _, wrong := range []string{"", "tg_", plain[1:], plain + "=", hash, strings.ToUpper(plain)} {
		if got, ok := set.Find(wrong); ok {
			t.Errorf("%q is %+v", wrong, got)
		}
	}
}

// Faults name what is wrong, and never show what stands in the file: it may be a
// token.
func TestParse_faults(t *testing.T) {
	t.Parallel()
	plain, hash := token.New()
	line := func(s string) string { return "tokens:\n  - {" + s + "}\n" }
	good := "name: kim, role: viewer, sha256: " + hash
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":              {"", "1 to 1000"},
		"no tokens":            {"tokens: []", "1 to 1000"},
		"an unknown field":     {line(good + ", scope: all"), "line 2"},
		"another list":         {"token:\n  - {" + good + "}", "line 1"},
		"no YAML":              {"tokens: [" + plain, "line"},
		"a bare token":         {plain, "tokens"},
		"no name":              {line("role: viewer, sha256: " + hash), "name:"},
		"a bad name":           {line("name: \"a b\", role: viewer, sha256: " + hash), "name:"},
		"a bad role":           {line("name: kim, role: root, sha256: " + hash), "role:"},
		"a bad domain":         {line(good + ", domain: \"a/b\""), "domain:"},
		"a bound pod":          {line("name: p, role: pod, domain: d, sha256: " + hash), "domain:"},
		"a bound asker":        {line("name: p, role: check, domain: d, sha256: " + hash), "domain: a check token"},
		"the token itself":     {line("name: kim, role: viewer, sha256: " + plain), "sha256:"},
		"a short hash":         {line("name: kim, role: viewer, sha256: abcd"), "sha256:"},
		"the same name twice":  {line(good) + "  - {name: kim, role: viewer, sha256: \"" + strings.Repeat("0", 64) + "\"}\n", "token 2: name:"},
		"the same token twice": {line(good) + "  - {name: lee, role: viewer, sha256: " + hash + "}\n", "token 2: sha256:"},
	} {
		_, err := token.Parse([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want something about %q", name, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), plain) || strings.Contains(err.Error(), hash)) {
			t.Errorf("%s: the error shows it: %v", name, err)
		}
	}
}

func TestFile_followsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	at := time.Unix(1_800_000_000, 0)
	var log bytes.Buffer
	write := func(text string) {
		t.Helper()
		at = at.Add(2 * time.Second)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	old, oldHash := token.New()
	fresh, freshHash := token.New()
	write("tokens:\n  - {name: kim, role: viewer, sha256: " + oldHash + "}\n")
	f, err := token.Open(token.Config{Path: path, Now: func() time.Time { return at }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	write("tokens:\n  - {name: kim, role: viewer, sha256: " + old + "}\n") // a slip
	if _, ok := f.Find(old); !ok {
		t.Error("a slip locks everybody out")
	}
	if !strings.Contains(log.String(), "sha256:") || strings.Contains(log.String(), old) {
		t.Errorf("the log says %s", log.String())
	}
	write("tokens:\n  - {name: kim, role: viewer, sha256: " + freshHash + "}\n")
	if _, ok := f.Find(old); ok {
		t.Error("a removed token is still good")
	}
	if _, ok := f.Find(fresh); !ok {
		t.Error("a new token is not good")
	}
	if _, err := token.Open(token.Config{Path: path + ".none"}); err == nil {
		t.Error("a file that is not there is opened")
	}
	write(strings.Repeat("#\n", 1<<20))
	if _, err := token.Open(token.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("got %v for a large file", err)
	}
}

func FuzzParse(f *testing.F) {
	_, hash := token.New()
	f.Add([]byte("tokens:\n  - {name: kim, role: viewer, sha256: " + hash + "}\n"))
	f.Add([]byte("tokens: [{}]"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if set, err := token.Parse(text); (set == nil) == (err == nil) {
			t.Errorf("got %v, %v", set, err)
		}
	})
}
