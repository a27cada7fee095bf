//go:build !race

package tallygate_test

// raceEnabled says that the race detector is on: it makes pools forget on purpose.
const raceEnabled = false
