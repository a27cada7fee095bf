//go:build race

package faults_test

// slack is by how much the bounds of times are widened: the race detector makes
// everything four times slower.
const slack = 4
