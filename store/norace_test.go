//go:build !race

package store_test

// raceEnabled says that the race detector is on: it changes what things cost.
const raceEnabled = false
