package pod

import (
	"reflect"
	"testing"
)

// What a lease hit reads of a bucket is two cache lines; with a line for the name
// an entry is four, and none of them lies across two entries.
func TestBucketLayout(t *testing.T) {
	const line = 64
	bucket := reflect.TypeFor[bucket]()
	if size := bucket.Size(); size != 3*line {
		t.Errorf("a bucket has %d bytes, want %d", size, 3*line)
	}
	view, _ := bucket.FieldByName("view")
	if end := view.Offset + view.Type.Size(); end > 2*line {
		t.Errorf("what a lease hit reads ends at byte %d, want at most %d", end, 2*line)
	}
}
