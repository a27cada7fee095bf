// Package storetest says what a store.Store is, in tests: [Run] is the suite
// that every implementation must pass, [Model] the slow and obvious store that
// says what the right answers are, and [Agree] drives random histories against
// a store and the model and compares every answer. Package storetest/history
// checks that concurrent histories have a sequential explanation.
//
// An implementation outside this module is held to the same:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			return storetest.Harness{Store: open(t)}
//		})
//	}
//
// The package imports nothing but the standard library and the contracts. It
// may be used from several tests at once: names of buckets are made so that no
// two tests meet in one store.
package storetest
