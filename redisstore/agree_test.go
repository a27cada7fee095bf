package redisstore_test

import (
	"testing"

	"github.com/tallygate/tallygate/storetest"
	"github.com/tallygate/tallygate/storetest/history"
)

// TestAgree: the script and the slow model give the same answers to the same
// random histories, leases included.
func TestAgree(t *testing.T) {
	ops := 60_000
	if testing.Short() {
		ops = 5_000
	}
	for seed := range uint64(4) {
		storetest.Agree(t, virtual(t), ops/4, 1+seed)
	}
}

// TestLinearizable: concurrent histories on a cluster have an order that explains
// every answer.
func TestLinearizable(t *testing.T) {
	history.Linearizable(t, connected(t), 20)
}
