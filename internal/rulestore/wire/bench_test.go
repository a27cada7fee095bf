package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// One change of a set with 100,000 overrides, its digest with it.
func BenchmarkMerge(b *testing.B) {
	set := rulestore.Set{Revision: 1}
	for i := range 100_000 {
		key := fmt.Sprintf("acct_%06d", i)
		set.Overrides = append(set.Overrides, rulestore.Override{
			Rule: "growth", Key: []string{key}, ID: `["` + key + `"]`, Version: 1, Revision: 1,
			Body: json.RawMessage(`{"key":"` + key + `","rule":"growth","rate":25000,"burst":50000,"reason":"launch week"}`),
		})
	}
	change := set.Overrides[50_000]
	change.Version, change.Revision = 2, 2
	for b.Loop() {
		wire.Merge(set, rulestore.Changes{Revision: 2, Overrides: []rulestore.Override{change}})
	}
}
