//go:build !race

package faults_test

// slack is by how much the bounds of times are widened.
const slack = 1
