package tallygate

import "github.com/tallygate/tallygate/internal/candidate"

// Trial is what a pod counted of a rule and its candidate, in slices of 10 s.
type Trial = candidate.Trial
