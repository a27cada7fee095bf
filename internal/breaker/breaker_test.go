package breaker

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = int64(time.Second)

func newBreaker() *Breaker { return &Breaker{Failures: 3, ProbeEvery: time.Second} }

// fail makes n calls without an answer at a time.
func (b *Breaker) fail(now int64, n int) (opened int) {
	for range n {
		if b.Failure(now, now, Send, 0) {
			opened++
		}
	}
	return opened
}

func TestBreaker_opens(t *testing.T) {
	for name, row := range map[string]struct {
		outcomes string // a: answer, x: none
		opens    bool
	}{
		"two in a row":                    {"xx", false},
		"three in a row":                  {"xxx", true},
		"three with an answer between":    {"xxaxx", false},
		"half of twenty":                  {"xaxaxaxaxaxaxaxaxaxax", true},
		"half of nineteen":                {"xaxaxaxaxaxaxaxaxax", false},
		"nine of twenty":                  {"aaxaxaxaxaxaxaxaxaxa", false},
		"older than twenty do not count":  {"xaxaxaxaxaxaxaxaxa" + "aaaa" + "xa", false},
		"answers never open it":           {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
		"one of twenty, for as long as …": {"aaaaaaaaaaaaaaaaaaaxaaaaaaaaaaaaaaaaaaax", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBreaker()
			for i, o := range row.outcomes {
				if o == 'a' {
					b.Success(Send)
				} else {
					b.Failure(int64(i), int64(i), Send, 0)
				}
			}
			if b.open != row.opens {
				t.Errorf("open = %v, want %v", b.open, row.opens)
			}
		})
	}
}

// TestBreaker_together: calls that were under way together and failed say once what
// they met; three deadlines one after the other open it.
func TestBreaker_together(t *testing.T) {
	const deadline = 5e6
	b := newBreaker()
	for round := range int64(3) {
		asked := round * deadline
		for i := range int64(3) {
			if b.Failure(asked+deadline+i, asked+i, Send, 0) != (round == 2 && i == 0) {
				t.Fatalf("round %d, call %d: open = %v", round, i, b.open)
			}
		}
	}
}

func TestBreaker_within(t *testing.T) {
	b := &Breaker{Failures: 5, Within: 10 * time.Second, ProbeEvery: 30 * time.Second}
	for i := range int64(20) {
		b.Failure(i*4*second, i*4*second, Send, 0) // four within 10 s at most
		b.Success(Send)
		b.Success(Send)
	}
	if b.open {
		t.Error("it opened by failures that are far apart")
	}
	at := 100 * second
	for i := range int64(5) {
		b.Failure(at+i*second, at+i*second, Send, 0)
		b.Success(Send)
		b.Success(Send)
	}
	if !b.open {
		t.Error("five within 10 s did not open it")
	}
}

func TestBreaker_probe(t *testing.T) {
	b := newBreaker()
	b.fail(0, 3)
	for _, step := range []struct {
		at   int64
		want Permit
	}{{0, Refuse}, {799e6, Refuse}, {800e6, Probe}, {800e6, Refuse}, {5 * second, Refuse}} {
		if got := b.Ask(step.at); got != step.want {
			t.Fatalf("at %d ms: %d, want %d", step.at/1e6, got, step.want)
		}
	}
	// Answers of calls sent before do not close it, nor do their failures count.
	if b.Success(Send) || !b.open {
		t.Error("an answer to an old call closed it")
	}
	b.fail(5*second, 10)
	if b.Ask(5*second) != Refuse {
		t.Error("a second probe beside the first")
	}
	b.Failure(5*second, 5*second, Probe, 1)
	if b.Ask(6*second-1) != Refuse || b.Ask(6*second) != Probe {
		t.Error("the pause after a failed probe is not one second by full chance")
	}
	if !b.Success(Probe) || b.open || b.Down(7*second) != 0 {
		t.Error("an answered probe does not close it")
	}
	if b.fail(7*second, 2) != 0 || b.fail(7*second, 1) != 1 {
		t.Error("once closed it must take three failures again")
	}
}

// TestBreaker_properties: whatever happens, there is one probe at a time and at most
// one in 0.8 s, down counts from when it opened, and an answered probe closes it.
func TestBreaker_properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBreaker()
		now, last, probing := int64(0), -10*second, false
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, 400e6).Draw(t, "later")
			was, since := b.open, b.sinceNS
			p := b.Ask(now)
			switch {
			case p == Send && was, p == Probe && !was:
				t.Fatalf("open %v: %d", was, p)
			case p == Probe && (probing || now-last < 800e6):
				t.Fatalf("a probe %d ms after the last, which is out: %v", (now-last)/1e6, probing)
			}
			if p == Probe {
				probing = true
			}
			if down := b.Down(now); was && down < time.Duration(now-since) || !was && down != 0 {
				t.Fatalf("down for %s, open %v since %d", down, was, since)
			}
			chance := rapid.Float64Range(0, 1).Draw(t, "chance")
			switch outcome := rapid.IntRange(0, 3).Draw(t, "outcome"); {
			case probing && outcome == 0:
				b.Failure(now, now, Probe, chance)
				probing, last = false, now
			case probing && outcome == 1:
				if !b.Success(Probe) || b.open {
					t.Fatal("an answered probe did not close it")
				}
				probing = false
			case p == Send && outcome <= 1:
				if b.Failure(now, now, Send, chance) {
					last = now
				}
			case p == Send:
				b.Success(Send)
			}
		}
	})
}
