//go:build race

package rulestore_test

const raceDetector = true
