//go:build race

package tallygate_test

const raceEnabled = true
