//go:build race

package pod_test

const raceEnabled = true
