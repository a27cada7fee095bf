package headers_test

import (
	"maps"
	"net/http"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/headers"
)

// encode returns the fields as a map.
func encode(s headers.Style, facts headers.Facts) map[string]string {
	var f headers.Fields
	s.Encode(&f, facts)
	got := make(map[string]string, f.Len())
	for name, value := range f.All() {
		got[name] = string(value)
	}
	return got
}

func TestEncode(t *testing.T) {
	t.Parallel()
	growth := headers.Facts{
		Rule: "growth-global", Limit: 200, WindowMS: 2000, Remaining: 141, ResetMS: 590,
		NowMS: 1_790_000_000_500,
	}
	drained := growth
	drained.Remaining, drained.ResetMS, drained.Denied, drained.RetryMS = 0, 1995, true, 8
	hopeless := growth
	hopeless.Denied = true

	tests := []struct {
		name  string
		style headers.Style
		facts headers.Facts
		want  map[string]string
	}{
		{"HDR-06 allowed, as designed", headers.Style{}, growth, map[string]string{
			"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "141", "X-RateLimit-Reset": "1790000002",
			"RateLimit-Policy": `"growth-global";q=200;w=2`, "RateLimit": `"growth-global";r=141;t=1`,
		}},
		{"HDR-09 denied has all of them", headers.Style{}, drained, map[string]string{
			"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790000003",
			"RateLimit-Policy": `"growth-global";q=200;w=2`, "RateLimit": `"growth-global";r=0;t=1`,
			"Retry-After": "1",
		}},
		{"no waiting helps", headers.Style{IETF: headers.IETFOff}, hopeless, map[string]string{
			"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "141", "X-RateLimit-Reset": "1790000002",
		}},
		{"seconds left", headers.Style{Reset: headers.ResetSeconds, IETF: headers.IETFOff}, drained, map[string]string{
			"X-RateLimit-Limit": "200", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2", "Retry-After": "1",
		}},
		{"odd names stay parsable", headers.Style{Reset: headers.ResetSeconds}, headers.Facts{Rule: "a\"b\\c\nd"}, map[string]string{
			"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0",
			"RateLimit-Policy": `"a\"b\\c?d";q=0;w=1`, "RateLimit": `"a\"b\\c?d";r=0;t=1`,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := encode(test.style, test.facts); !maps.Equal(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		ms     int64
		jitter float64
		rand   float64
		want   string
	}{
		{"HDR-02 rounds up", 1500, 0, 0, "2"},
		{"HDR-04 whole", 40_000, 0, 0, "40"},
		{"HDR-08 never 0", 1, 0, 0, "1"},
		{"OVF-08 beyond 2^31 ms", 2_592_000_000, 0, 0, "2592000"},
		{"jitter later", 10_000, 0.1, 0.999, "11"},
		{"jitter never earlier", 10_000, 0.1, 0, "10"},
		{"jitter is capped", 10_000, 5, 0.999, "11"},
		{"jitter never negative", 10_000, -5, 0.999, "10"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			style := headers.Style{Jitter: test.jitter, Rand: func() float64 { return test.rand }}
			got := encode(style, headers.Facts{Denied: true, RetryMS: test.ms})
			if got["Retry-After"] != test.want {
				t.Errorf("Retry-After %q, want %q", got["Retry-After"], test.want)
			}
		})
	}
}

// Whatever the numbers, values are whole, never negative, and Retry-After is
// enough: it does not end before the wait, and t does not end after it.
func TestRetryAfterIsEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts := headers.Facts{
			Rule:      "r",
			Limit:     rapid.Int64Range(-1, 1e12).Draw(t, "limit"),
			Remaining: rapid.Int64Range(-10, 1e12).Draw(t, "remaining"),
			ResetMS:   rapid.Int64Range(-10, 1<<35).Draw(t, "reset"),
			NowMS:     rapid.Int64Range(0, 1<<42).Draw(t, "now"),
			RetryMS:   rapid.Int64Range(1, 1<<35).Draw(t, "retry"),
			Denied:    true,
		}
		style := headers.Style{
			Reset:  headers.Reset(rapid.IntRange(0, 1).Draw(t, "style")),
			Jitter: rapid.Float64Range(0, 0.1).Draw(t, "jitter"),
			Rand:   func() float64 { return 0.5 },
		}
		got := encode(style, facts)
		for name, value := range got {
			for _, c := range value {
				if c == '-' || c == '.' {
					t.Fatalf("%s: %q is not a whole number that is never negative", name, value)
				}
			}
		}
		var seconds int64
		for _, c := range got["Retry-After"] {
			seconds = seconds*10 + int64(c-'0')
		}
		if seconds*1000 < facts.RetryMS || seconds > facts.RetryMS/1000*11/10+2 {
			t.Fatalf("Retry-After %d s for a wait of %d ms", seconds, facts.RetryMS)
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]headers.Reset{"epoch": headers.ResetEpoch, "seconds": headers.ResetSeconds} {
		if got, err := headers.ParseReset(name); got != want || err != nil {
			t.Errorf("ParseReset(%q) = %v, %v", name, got, err)
		}
	}
	for name, want := range map[string]headers.IETF{"draft-11": headers.IETFDraft11, "off": headers.IETFOff} {
		if got, err := headers.ParseIETF(name); got != want || err != nil {
			t.Errorf("ParseIETF(%q) = %v, %v", name, got, err)
		}
	}
	if _, err := headers.ParseReset("iso"); err == nil {
		t.Error("ParseReset accepted an unknown style")
	}
	if _, err := headers.ParseIETF("draft-3"); err == nil {
		t.Error("ParseIETF accepted an unknown draft")
	}
	if got := len(headers.Names()); got != 6 {
		t.Errorf("%d names, want 6", got)
	}
}

func TestEncodeAllocs(t *testing.T) {
	var f headers.Fields
	style := headers.Style{}
	facts := headers.Facts{Rule: "growth-global", Limit: 200, WindowMS: 2000, Denied: true, RetryMS: 8}
	style.Encode(&f, facts)
	if got := testing.AllocsPerRun(100, func() { style.Encode(&f, facts) }); got != 0 {
		t.Errorf("Encode allocates %v times", got)
	}
}

// What is kept from answer to answer must not show: used again, fields say what new
// ones say.
func TestFieldsUsedAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var used headers.Fields
		for range 8 {
			facts := headers.Facts{
				Rule:      rapid.SampledFrom([]string{"", "a", "b\"c"}).Draw(t, "rule"),
				Limit:     rapid.Int64Range(-1, 1).Draw(t, "limit"),
				WindowMS:  rapid.SampledFrom([]int64{0, 1000, 2000}).Draw(t, "window"),
				Remaining: rapid.Int64Range(0, 20).Draw(t, "remaining"),
				Denied:    rapid.Bool().Draw(t, "denied"),
				RetryMS:   1500,
			}
			style := headers.Style{IETF: headers.IETF(rapid.IntRange(0, 1).Draw(t, "ietf"))}
			want := encode(style, facts)
			if rapid.Bool().Draw(t, "only retry") {
				want = map[string]string{}
				if facts.Denied {
					want["Retry-After"] = "2"
				}
				used.Reset()
				style.EncodeRetry(&used, facts)
			} else {
				style.Encode(&used, facts)
			}
			got, h := map[string]string{}, http.Header{}
			for name, value := range used.All() {
				got[name] = string(value)
			}
			if !maps.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			used.SetIn(h)
			for name, value := range want {
				if h.Get(name) != value || len(h) != len(want) {
					t.Fatalf("set %v, want %v", h, want)
				}
			}
		}
	})
}

func TestSetIn(t *testing.T) {
	t.Parallel()
	var f headers.Fields
	style := headers.Style{}
	style.Encode(&f, headers.Facts{Rule: "r", Limit: 2, WindowMS: 60_000, Denied: true, RetryMS: 1500})
	h := http.Header{"Retry-After": {"9", "9"}}
	f.SetIn(h)
	if len(h) != len(headers.Names()) || len(headers.CanonicalNames()) != len(h) {
		t.Errorf("got %v", h)
	}
	for name, want := range encode(style, headers.Facts{Rule: "r", Limit: 2, WindowMS: 60_000, Denied: true, RetryMS: 1500}) {
		if got := h.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for i, name := range headers.CanonicalNames() {
		if want := http.CanonicalHeaderKey(headers.Names()[i]); name != want {
			t.Errorf("got %s, want %s", name, want)
		}
	}
	// The values share an array: one that is added must not run into the next.
	h.Add("X-RateLimit-Limit", "3")
	if got := h.Get("X-RateLimit-Remaining"); got != "0" {
		t.Errorf("after Add, Remaining is %q", got)
	}
}
