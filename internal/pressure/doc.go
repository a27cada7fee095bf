// Package pressure sheds requests before they reach an upstream that is overloaded.
//
//	answers of the upstream ─► Answered ─► is it overloaded? ─► factor of a priority
//	                                                              │
//	request, its rules ─────► Admit ─► within the factor of what ◄┘
//	                                   passed before? ─► Passed, or Return
//
// Every five seconds of overload the lowest priority that can still give way is cut to
// 0.8 of what it was, down to the floor of its rules, then the next one; ten seconds
// without overload give the priority that was cut last a twentieth back. A rule that is
// cut admits its factor of what passed in the ten seconds before it was first cut: were
// those the last ten seconds at any time, a standing factor would cut again and again,
// and no floor would be one.
//
// Everything here is arithmetic on the times that are passed in. A [Stepper] is not
// safe for concurrent use: its owner has the lock.
package pressure
