package pod

import (
	"testing"
	"unsafe"
)

// What a lease hit reads of a bucket ends with the cache line after that of its
// name, what a denial reads with the next: an entry is four lines, the first 56
// bytes of it the table's, and none of them lies across two entries.
func TestBucketLayout(t *testing.T) {
	const (
		line = 64
		name = 56
	)
	var b bucket
	if end := name + unsafe.Sizeof(b); end != 4*line {
		t.Errorf("a bucket ends at byte %d of its entry, want %d", end, 4*line)
	}
	if end := name + unsafe.Offsetof(b.leases) + unsafe.Offsetof(b.leases.generation); end > 2*line {
		t.Errorf("what a lease hit reads ends at byte %d, want at most %d", end, 2*line)
	}
	if end := name + unsafe.Offsetof(b.pauseNS) + unsafe.Sizeof(b.pauseNS); end > 3*line {
		t.Errorf("what a denial reads ends at byte %d, want at most %d", end, 3*line)
	}
}
