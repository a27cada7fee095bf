package rulestore

import "encoding/json"

// Action is what a change does.
type Action string

// The actions.
const (
	// ActionPut makes a rule, or replaces its live version. A candidate stays, and
	// its trial begins anew.
	ActionPut Action = "put"
	// ActionPropose puts a candidate beside the live rule, in stage shadow. One that
	// stands there is replaced.
	ActionPropose Action = "propose"
	// ActionCanary moves the candidate to stage canary with Percent of the pods, or
	// with 0 back to stage shadow.
	ActionCanary Action = "canary"
	// ActionPromote makes the candidate the live rule. Whether it has proven itself is
	// for the caller to ask.
	ActionPromote Action = "promote"
	// ActionRollback drops the candidate; where there is none, it brings back the
	// live rule from before the last change of it. Again, the one before that.
	ActionRollback Action = "rollback"
	// ActionShadow and ActionEnforce set the live rule's mode.
	ActionShadow  Action = "shadow"
	ActionEnforce Action = "enforce"
	// ActionDelete removes a rule, its candidate and all its overrides.
	ActionDelete Action = "delete"

	// ActionOverride makes or replaces an override, ActionLift removes it.
	ActionOverride Action = "override"
	ActionLift     Action = "lift"

	// ActionReset makes a key full again.
	ActionReset Action = "reset"
)

// Actions returns all of them.
func Actions() []Action {
	return []Action{
		ActionPut, ActionPropose, ActionCanary, ActionPromote, ActionRollback, ActionShadow, ActionEnforce, ActionDelete,
		ActionOverride, ActionLift, ActionReset,
	}
}

// Change is one wish.
type Change struct {
	Action Action
	// Rule is the rule's id. With a Body it may be left out.
	Rule string
	// Key is the key of an override or a reset. With a Body it may be left out.
	Key []string
	// IfMatch is the version that the caller has seen: 0 means that the rule or
	// override must not be there. Every action but a reset checks it; there is no
	// way around.
	IfMatch int64
	// Body is the rule (put, propose) or the override in JSON, read strictly.
	Body json.RawMessage
	// Percent is that of ActionCanary, 0 to 100.
	Percent int
}

// MaxChanges bounds one bulk: what 1,000 rules with 100,000 overrides are, and as
// much again, so that a file of them can be taken over in one step.
const MaxChanges = 200_000

// Applied is what a bulk did, or for a dry run what it would do.
type Applied struct {
	// Revision is that of all its changes.
	Revision int64
	// Results has one for each change, in their order.
	Results []Result
}

// Result is what one change did.
type Result struct {
	// Version is the new one; 0 for a reset.
	Version int64
	// Rule or Override is as it is now, tombstones too; the other is its zero value.
	Rule     Rule
	Override Override
	// Before and After are as in [Entry].
	Before, After json.RawMessage
	// Warnings are what package rules finds doubtful about the body.
	Warnings []string
}
