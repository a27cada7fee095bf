package rules_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

func TestWhatARuleSheds(t *testing.T) {
	t.Parallel()
	counts := rules.Rule{
		ID: "r", Match: map[string]string{"plan": "a"}, Identity: []string{"ip"},
		Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 1}, Priority: 7,
	}
	sheds := counts
	sheds.ShedFloorMilli = 300
	shadow := sheds
	shadow.Mode = rules.ModeShadow
	for _, tt := range []struct {
		name  string
		rule  rules.Rule
		floor int64
	}{
		{"nothing by default", counts, 1_000},
		{"down to its floor", sheds, 300},
		{"nothing in shadow", shadow, 1_000},
		{"nothing where it counts nothing", rules.Rule{ID: "r", Match: map[string]string{"plan": "a"}, Action: rules.ActionDeny}, 1_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{tt.rule}}, 1, time.Unix(0, 0))
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			if got := s.Rule("r").ShedFloor(); got != tt.floor {
				t.Errorf("floor %d, want %d", got, tt.floor)
			}
			if got := s.Rule("r").Priority(); got != int(tt.rule.Priority) {
				t.Errorf("priority %d, want %d", got, tt.rule.Priority)
			}
		})
	}
}

func TestPressureFieldsAreChecked(t *testing.T) {
	t.Parallel()
	rule := rules.Rule{
		ID: "r", Match: map[string]string{"plan": "a"}, Identity: []string{"ip"}, Priority: -1, ShedFloorMilli: 1,
		Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 1},
	}
	const want = "priority: -1 is below 0; raise it\nshed_floor in thousandths: 1 is below 50; raise it"
	if got := lines(rule.Validate()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	deny := rules.Rule{ID: "r", Match: map[string]string{"plan": "a"}, Action: rules.ActionDeny, Priority: 1, ShedFloorMilli: 100}
	if got := deny.Validate().Err(); got == nil {
		t.Error("a deny rule may be shed")
	}
}
