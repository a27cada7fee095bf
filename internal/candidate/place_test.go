package candidate_test

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/internal/candidate"
)

// Pods are spread over the places, a pod has one for ever, and nobody may move it.
func TestPlaceOf(t *testing.T) {
	t.Parallel()
	var at [candidate.Places]int
	for i := range 10_000 {
		at[candidate.PlaceOf(fmt.Sprint("pod-", i))]++
	}
	for place, n := range at {
		if n < 50 || n > 150 {
			t.Errorf("%d of 10,000 pods at place %d, want about 100", n, place)
		}
	}
	for id, want := range map[string]int{"": 52, "pod-1": 5} {
		if got := candidate.PlaceOf(id); got != want {
			t.Errorf("pod %q at %d, want %d as ever", id, got, want)
		}
	}
}
