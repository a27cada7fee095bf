//go:build !race

package sqlite_test

const slowed = 1
