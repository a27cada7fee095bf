package keyed_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/tallygate/tallygate/internal/keyed"
)

// never and always are what a caller may say of an entry.
func never(*int) bool  { return false }
func always(*int) bool { return true }

func name(n int) keyed.Name {
	return keyed.Name{Domain: "default", Rule: "growth-global", Key: fmt.Sprint("acct_", n)}
}

// insert puts a value, or returns false for a full table.
func insert(t *keyed.Table[int], n keyed.Name, value int, droppable func(*int) bool) bool {
	h := t.Hash(n)
	t.Lock(t.Bit(h))
	defer t.Unlock(t.Bit(h))
	v := t.InsertLocked(h, n, droppable)
	if v != nil {
		*v = value
	}
	return v != nil
}

// get returns the value of a name and whether there is one.
func get(t *keyed.Table[int], n keyed.Name) (int, bool) {
	h := t.Hash(n)
	t.Lock(t.Bit(h))
	defer t.Unlock(t.Bit(h))
	if v := t.GetLocked(h, n); v != nil {
		return *v, true
	}
	return 0, false
}

func remove(t *keyed.Table[int], n keyed.Name) {
	h := t.Hash(n)
	t.Lock(t.Bit(h))
	defer t.Unlock(t.Bit(h))
	t.DeleteLocked(h, n)
}

// TestTable_agreesWithAMap runs random inserts and deletes beside a map.
func TestTable_agreesWithAMap(t *testing.T) {
	for _, bound := range []int{500, 100_000} {
		t.Run(fmt.Sprint("bound ", bound), func(t *testing.T) {
			table, want := keyed.New[int](bound), map[keyed.Name]int{}
			rng := rand.New(rand.NewPCG(3, 4))
			for i := range 200_000 {
				n := name(rng.IntN(400))
				value, there := get(table, n)
				if w, ok := want[n]; ok != there || value != w {
					t.Fatalf("step %d: %v is %d, %v, want %d, %v", i, n, value, there, w, ok)
				}
				if !there && rng.IntN(2) == 0 {
					insert(table, n, i, never)
					want[n] = i
				} else if there && rng.IntN(2) == 0 {
					remove(table, n)
					delete(want, n)
				}
			}
			if table.Len() != len(want) {
				t.Errorf("Len = %d, want %d", table.Len(), len(want))
			}
		})
	}
}

func TestTable_tellsNamesApart(t *testing.T) {
	table := keyed.New[int](100)
	names := []keyed.Name{
		{Rule: "a", Key: "b:c"},
		{Rule: "a:b", Key: "c"},
		{Domain: "a", Rule: "b:c"},
		{Key: "ab:c"},
		{Domain: "a:b", Key: "c"},
		{},
		{Domain: "x"},
		{Rule: "x"},
		{Key: "x"},
		{Key: "x\x00"},
		{Key: strings.Repeat("k", 4095) + "1"},
		{Key: strings.Repeat("k", 4095) + "2"},
	}
	for i, n := range names {
		insert(table, n, i, never)
	}
	for i, n := range names {
		if got, ok := get(table, n); !ok || got != i {
			t.Errorf("%q is %d, %v, want %d", n, got, ok, i)
		}
	}
}

// TestInsertLocked_copiesTheName: callers use their buffers again.
func TestInsertLocked_copiesTheName(t *testing.T) {
	for _, part := range []func(string) keyed.Name{
		func(s string) keyed.Name { return keyed.Name{Domain: s} },
		func(s string) keyed.Name { return keyed.Name{Rule: s} },
		func(s string) keyed.Name { return keyed.Name{Key: s} },
		func(s string) keyed.Name { return keyed.Name{Domain: "d", Rule: "r", Key: s} },
	} {
		table, buffer := keyed.New[int](10), []byte("first")
		insert(table, part(unsafe.String(&buffer[0], len(buffer))), 7, never)
		copy(buffer, "other")
		if got, ok := get(table, part("first")); !ok || got != 7 {
			t.Errorf("%q was lost with its buffer", part("first"))
		}
	}
}

func TestInsertLocked_bound(t *testing.T) {
	for _, bound := range []int{1, 5, 1000, 50_000} {
		table := keyed.New[int](bound)
		for i := range bound {
			if !insert(table, name(i), i, never) {
				t.Fatalf("bound %d: refused at %d", bound, i)
			}
		}
		if insert(table, name(bound), 0, never) {
			t.Errorf("bound %d: inserted one too many", bound)
		}
		if !table.Full() || table.Len() != bound {
			t.Errorf("bound %d: Len = %d, Full = %v", bound, table.Len(), table.Full())
		}
		if !insert(table, name(bound), 0, always) {
			t.Errorf("bound %d: refused with droppable ones there", bound)
		}
		if table.Len() > bound {
			t.Errorf("bound %d: Len = %d", bound, table.Len())
		}
	}
}

// TestInsertLocked_dropsOnlyWhatMayGo: of a full table the odd values may go.
func TestInsertLocked_dropsOnlyWhatMayGo(t *testing.T) {
	const bound = 200
	table := keyed.New[int](bound)
	odd := func(v *int) bool { return *v%2 == 1 }
	for i := range bound {
		insert(table, name(i), i, never)
	}
	inserted := 0
	for i := bound; i < 3*bound; i++ {
		if insert(table, name(i), 0, odd) {
			inserted++
		}
	}
	if inserted != bound/2 {
		t.Errorf("%d newcomers found room, want %d", inserted, bound/2)
	}
	for i := range bound {
		if _, ok := get(table, name(i)); ok != (i%2 == 0) {
			t.Errorf("%d is there: %v", i, ok)
		}
	}
}

// TestInsertLocked_sweeps: what may go does go in the long run, without the
// table being full.
func TestInsertLocked_sweeps(t *testing.T) {
	table := keyed.New[int](1_000_000)
	for i := range 100_000 {
		insert(table, name(i), i, always)
	}
	if table.Len() > 2000 {
		t.Errorf("Len = %d after inserts that may all go", table.Len())
	}
}

// TestTable_locksInOrder: calls over several names from all sides do not wait
// for one another for ever, and counts stay exact.
func TestTable_locksInOrder(t *testing.T) {
	table := keyed.New[int](100_000)
	const names, calls = 300, 2000
	for i := range names {
		insert(table, name(i), 0, never)
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range calls {
				hashes, mask := map[keyed.Name]uint64{}, uint64(0)
				for range 4 {
					n := name(rng.IntN(names))
					hashes[n] = table.Hash(n)
					mask |= table.Bit(hashes[n])
				}
				table.Lock(mask)
				for n, h := range hashes {
					*table.GetLocked(h, n) += 4 / len(hashes)
				}
				table.Unlock(mask)
			}
		})
	}
	all.Wait()
	if bits.OnesCount64(table.All()) != 64 {
		t.Errorf("%d shards, want 64", bits.OnesCount64(table.All()))
	}
	sum := 0
	for i := range names {
		v, _ := get(table, name(i))
		sum += v
	}
	if sum < 8*calls*3 || sum > 8*calls*4 {
		t.Errorf("sum = %d", sum)
	}
}

// TestTable_memory measures what an entry of 48 bytes costs beside its name.
func TestTable_memory(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the heap")
	}
	type value [6]int64
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const entries = 200_000
	table, before := keyed.New[value](entries), heap()
	for i := range entries {
		n := keyed.Name{Domain: "public-api", Rule: "growth-global", Key: fmt.Sprintf("acct_%012d", i)} // 40 bytes in all
		h := table.Hash(n)
		table.Lock(table.Bit(h))
		table.InsertLocked(h, n, func(*value) bool { return false })
		table.Unlock(table.Bit(h))
	}
	got := (heap()-before)/entries - 40
	runtime.KeepAlive(table)
	t.Logf("%d bytes an entry beside its name", got)
	if got > 110 {
		t.Errorf("%d bytes an entry, want at most 110", got)
	}
}

// Each sees every value that stays, under its own name, while others come and go.
func TestEach(t *testing.T) {
	table := keyed.New[int](5000)
	for i := range 3000 {
		insert(table, name(i), i, never)
	}
	for i := range 500 { // free entries are not seen
		h := table.Hash(name(i))
		table.Lock(table.Bit(h))
		table.DeleteLocked(h, name(i))
		table.Unlock(table.Bit(h))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 1000 {
			insert(table, name(10_000+i), 10_000+i, never)
		}
	})
	seen := map[int]bool{}
	table.Each(func(n keyed.Name, v *int) {
		if n != name(*v) {
			t.Errorf("%d is called %v", *v, n)
		}
		seen[*v] = true
	})
	wg.Wait()
	for i := range 3000 {
		if seen[i] != (i >= 500) {
			t.Fatalf("%d seen: %t", i, seen[i])
		}
	}
	keyed.New[int](1).Each(func(keyed.Name, *int) { t.Error("an empty table has a value") })
}
