package moment_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/moment"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

func TestClock(t *testing.T) {
	t.Parallel()
	start, reads := time.Unix(1_790_000_000, 0), 0
	c := moment.New(func() time.Time {
		reads++
		return start.Add(time.Duration(reads) * time.Second)
	})
	rule := func(id string) rules.Rule {
		return rules.Rule{ID: id, Match: map[string]string{"a": "b"}, Identity: []string{"k"}, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 10, Burst: 10}}
	}
	set := rules.Set{
		Rules:     []rules.Rule{rule("plain"), rule("ends")},
		Overrides: []rules.Override{{Rule: "ends", Key: []string{"x"}, Numbers: rules.Numbers{Burst: 20}, ExpiresAt: start.Add(time.Hour)}},
	}
	snapshot, problems := rules.Compile(nil, set, 1, start)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if c.Of(snapshot.Rule("plain")); reads != 0 {
		t.Errorf("read %d times for a rule whose numbers never end, want 0", reads)
	}
	if got := c.Of(snapshot.Rule("ends")); !got.Equal(start.Add(time.Second)) {
		t.Errorf("for an override that ends it is %v", got)
	}
	if got := c.Now(); !got.Equal(start.Add(time.Second)) || reads != 1 {
		t.Errorf("in the same check it is %v after %d reads", got, reads)
	}
	c.Forget()
	if got := c.Now(); !got.Equal(start.Add(2 * time.Second)) {
		t.Errorf("in the next check it is %v", got)
	}
}
