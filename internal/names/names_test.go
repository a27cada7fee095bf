package names_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/tallygate/tallygate/internal/names"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	n := names.New(2, "other", "none")
	for _, tt := range []struct {
		what, name string
		number     int
		own        string
	}{
		{"reserved", "none", 1, "none"},
		{"too long", strings.Repeat("x", names.MaxBytes+1), names.Rest, "other"},
		{"no text", "\xff", names.Rest, "other"},
		{"the first", "a", 2, "a"},
		{"the longest, and last", strings.Repeat("x", names.MaxBytes), 3, strings.Repeat("x", names.MaxBytes)},
		{"one too many", "b", names.Rest, "other"},
		{"known", "a", 2, "a"},
	} {
		if number, own := n.Number(tt.name); number != tt.number || own != tt.own {
			t.Errorf("%s: %d, %q, want %d, %q", tt.what, number, own, tt.number, tt.own)
		}
	}
	if got := len(n.All()); got != 4 {
		t.Errorf("%d names, want 4: %q", got, n.All())
	}
}

// The bytes of a name are its caller's to use again.
func TestNumber_copies(t *testing.T) {
	t.Parallel()
	n := names.New(9, "other")
	bytes := []byte("alice")
	n.Number(unsafe.String(&bytes[0], len(bytes)))
	copy(bytes, "mallo")
	if number, own := n.Number("alice"); number != 1 || own != "alice" {
		t.Errorf("%d, %q, want 1 and alice", number, own)
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	n := names.New(2, "other")
	if got, want := n.Add("a", "b", "a", "c"), []int{1, 2, 1, names.Rest}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n.Find("b") != 2 || n.Find("c") != names.Rest {
		t.Errorf("b is %d and c %d, want 2 and the rest", n.Find("b"), n.Find("c"))
	}
}

// An alias finds the number of another name, is none of the list, may move, and
// cannot be added without end.
func TestAlias(t *testing.T) {
	t.Parallel()
	n := names.New(2, "other")
	n.Add("a", "b")
	n.Alias("a~1", 1)
	n.Alias("moved", 1)
	n.Alias("moved", 2)
	if n.Find("a~1") != 1 || n.Find("moved") != 2 {
		t.Errorf("a~1 is %d and moved %d, want 1 and 2", n.Find("a~1"), n.Find("moved"))
	}
	n.Alias("third", 1)
	n.Alias("fourth", 1)
	n.Alias("fifth", 1)
	if n.Find("fourth") != 1 || n.Find("fifth") != names.Rest {
		t.Error("want four aliases of two names")
	}
	if got, want := n.All(), []string{"other", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whoever adds a name gets its one number, and finding it allocates nothing.
func TestNumber_concurrent(t *testing.T) {
	t.Parallel()
	n := names.New(50, "other")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				name := fmt.Sprint("n", i)
				number, own := n.Number(name)
				if number != names.Rest && (own != name || n.All()[number] != name || n.Find(name) != number) {
					t.Errorf("%s has number %d of %q", name, number, own)
				}
			}
		})
	}
	all.Wait()
	if got := len(n.All()); got != 51 {
		t.Errorf("%d names, want 51", got)
	}
}

func TestNumber_allocs(t *testing.T) {
	n := names.New(5, "other")
	n.Number("a")
	if got := testing.AllocsPerRun(100, func() { n.Number("a") }); got != 0 {
		t.Errorf("%v allocations for a known name, want 0", got)
	}
}
