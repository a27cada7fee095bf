//go:build race

package sqlite_test

// slowed is by how much the race detector may slow a check.
const slowed = 10
