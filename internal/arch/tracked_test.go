package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program built into the root was once committed by a careless `git add`: whoever
// imports the module downloads what is tracked.
func TestTrackedFilesAreSmall(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	base := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(base, ".git")); err != nil {
		t.Skip("not a checkout of git: ", err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", base, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal("git ls-files: ", err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("git lists %d files", len(names))
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(base, filepath.FromSlash(name)))
		if err != nil {
			continue // deleted here and not committed yet
		}
		if info.Size() > most {
			t.Errorf("%s has %d bytes, above %d: is it a source?", name, info.Size(), most)
		}
	}
}
