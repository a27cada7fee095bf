package kept

import (
	"bytes"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Decode is decode, for tests that feed it garbage.
func Decode(source string, file []byte) (rulestore.Set, time.Time, error) {
	return decode(source, bytes.NewReader(file))
}
