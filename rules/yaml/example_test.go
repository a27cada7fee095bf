package yaml_test

import (
	"fmt"

	"github.com/tallygate/tallygate/rules/yaml"
)

// A faulty rule is named with its line and column; the others are there.
func ExampleParse() {
	set, problems := yaml.Parse([]byte(`rules:
  - id: partners
    match: { plan: partner }
    action: allow
  - id: blocked
    match: { ip: 203.0.113.9 }
    action: dney
`))
	fmt.Println(len(set.Rules), set.Rules[0].ID)
	fmt.Println(problems)
	// Output:
	// 1 partners
	// 7:13: rule "blocked": action: "dney" is none of limit, allow, deny; did you mean "deny"?
}
