package candidate

import (
	"crypto/sha256"
	"encoding/binary"
)

// Places is the number of places that pods have. A candidate in canary on so many
// percent of the pods is enforced by those whose place is below that.
const Places = 100

// PlaceOf returns where a pod of that id stands among all pods, from 0. It is the same
// for all candidates, and for a pod that is started again.
func PlaceOf(pod string) int {
	sum := sha256.Sum256([]byte(pod))
	return int(binary.BigEndian.Uint64(sum[:8]) % Places)
}
