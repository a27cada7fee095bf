package counters_test

import (
	"reflect"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/counters"
)

// fill gives every number below v the next value, so that one that is not summed up
// shows.
func fill(v reflect.Value, next *int64) {
	switch v.Kind() {
	case reflect.Int64:
		*next++
		v.SetInt(*next)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, next)
		}
	}
}

// Every counter of every stripe is part of the sum.
func TestSum(t *testing.T) {
	t.Parallel()
	c := counters.New(2)
	next := int64(0)
	var rule counters.Rule
	fill(reflect.ValueOf(&rule).Elem(), &next)
	var figures counters.Figures
	fill(reflect.ValueOf(&figures).Elem(), &next)
	// A stripe that is held is not given out again: these are two.
	for i, s := range []*counters.Stripe{c.Lock(0), c.Lock(0)} {
		s.Figures = figures
		s.Errors = map[string]int64{"away": int64(i + 1)}
		*s.Rule(3) = rule
		*s.Route(2) = [2]int64{5, int64(i)}
		s.Unlock()
	}

	s := c.Sum()
	if len(s.Rules) != 4 || *s.RuleOf(0) != (counters.Rule{}) || *s.RuleOf(9) != (counters.Rule{}) || *s.RuleOf(3) != s.Rules[3] {
		t.Fatalf("%d rules, want 4, of which one has counted", len(s.Rules))
	}
	twice(t, "rule", reflect.ValueOf(s.Rules[3]), reflect.ValueOf(rule))
	twice(t, "checks", reflect.ValueOf(s.Figures), reflect.ValueOf(figures))
	if s.Errors["away"] != 3 || len(s.Routes) != 3 || s.Routes[2] != [2]int64{10, 1} || s.Routes[0] != [2]int64{} {
		t.Errorf("%v errors, %v routes", s.Errors, s.Routes)
	}
}

// twice checks that each number of a sum is twice that of its two parts.
func twice(t *testing.T, what string, sum, part reflect.Value) {
	t.Helper()
	parts := numbers(part)
	for i, got := range numbers(sum) {
		if got != 2*parts[i] || got == 0 {
			t.Errorf("number %d of the %s is %d, want %d", i, what, got, 2*parts[i])
		}
	}
}

// numbers are all numbers below v, in order.
func numbers(v reflect.Value) (list []int64) {
	switch v.Kind() {
	case reflect.Int64:
		list = append(list, v.Int())
	case reflect.Array:
		for i := range v.Len() {
			list = append(list, numbers(v.Index(i))...)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			list = append(list, numbers(field)...)
		}
	}
	return list
}

// Counting from many goroutines loses nothing, and what has grown once does not
// allocate again.
func TestLock_concurrent(t *testing.T) {
	t.Parallel()
	c := counters.New(4)
	var all sync.WaitGroup
	for range 8 {
		wanted := c.Next()
		all.Go(func() {
			for i := range 1000 {
				s := c.Lock(wanted)
				s.Rule(i%7).Spent++
				s.Route(i % 5)[counters.Denied(i%2 == 1)]++
				s.Checks[0][counters.Sources-1]++
				s.Unlock()
			}
		})
	}
	all.Wait()
	s := c.Sum()
	spent, routed := int64(0), int64(0)
	for i := range s.Rules {
		spent += s.Rules[i].Spent
	}
	for _, r := range s.Routes {
		routed += r[0] + r[1]
	}
	if spent != 8000 || routed != 8000 || s.Checks[0][counters.Sources-1] != 8000 {
		t.Errorf("%d spent, %d of routes, %v checks, want 8000 each", spent, routed, s.Checks[0])
	}
}

func TestLock_allocs(t *testing.T) {
	c := counters.New(4)
	count := func() {
		s := c.Lock(0)
		s.Rule(9).Denied++
		s.Route(9)[1]++
		s.Unlock()
	}
	count()
	if got := testing.AllocsPerRun(100, count); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
