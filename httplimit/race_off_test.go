//go:build !race

package httplimit_test

// raceEnabled says that the race detector is on: it makes pools forget on purpose.
const raceEnabled = false
