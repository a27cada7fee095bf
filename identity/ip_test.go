package identity_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/identity"
)

func TestIP(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"IPv4", "203.0.113.9", "203.0.113.9"},
		{"SEC-07 IPv4 with port", "203.0.113.9:40001", "203.0.113.9"},
		{"blanks", " 203.0.113.9\t", "203.0.113.9"},
		{"hidden port", "203.0.113.9:_gazonk", "203.0.113.9"},
		{"SEC-05 mapped, dotted", "::ffff:192.0.2.1", "192.0.2.1"},
		{"SEC-05 mapped, hex groups", "::ffff:c000:201", "192.0.2.1"},
		{"SEC-05 mapped, long form", "0:0:0:0:0:FFFF:C000:0201", "192.0.2.1"},
		{"SEC-05 mapped, full form", "0000:0000:0000:0000:0000:ffff:192.0.2.1", "192.0.2.1"},
		{"SEC-05 mapped, brackets and port", "[::ffff:192.0.2.1]:443", "192.0.2.1"},
		{"SEC-05 mapped, zone", "::ffff:192.0.2.1%eth0", "192.0.2.1"},
		{"SEC-05 the neighbour is another", "::ffff:192.0.2.2", "192.0.2.2"},
		{"SEC-07 brackets and port", "[2001:db8:1:2::1]:443", "2001:db8:1:2::"},
		{"SEC-07 bare IPv6", "2001:db8:1:2::1", "2001:db8:1:2::"},
		{"SEC-07 upper case, zeros", "2001:DB8:1:2:0:0:0:1", "2001:db8:1:2::"},
		{"SEC-07 brackets alone", "[2001:db8:1:2::1]", "2001:db8:1:2::"},
		{"SEC-07 leading zero", "2001:0db8:1:2::1", "2001:db8:1:2::"},
		{"another host of the network", "2001:db8:1:2:ffff::9", "2001:db8:1:2::"},
		{"another network", "2001:db8:1:3::1", "2001:db8:1:3::"},
		{"zone", "fe80::1%eth0", "fe80::"},
		{"zone, brackets and port", "[fe80::1%25eth0]:8080", "fe80::"},
		{"mapped only by its bits", "::fffe:192.0.2.1", "::"},

		{"SEC-07 junk", "junk1", ""},
		{"nothing", "", ""},
		{"unknown of RFC 7239", "unknown", ""},
		{"port alone", ":80", ""},
		{"empty port", "203.0.113.9:", ""},
		{"junk port", "203.0.113.9:http", ""},
		{"long port", "203.0.113.9:123456", ""},
		{"octal byte", "203.0.113.010", ""},
		{"too few bytes", "203.0.113", ""},
		{"one number", "3405803785", ""},
		{"network", "203.0.113.0/24", ""},
		{"open bracket", "[2001:db8::1", ""},
		{"text after bracket", "[2001:db8::1]x", ""},
		{"two addresses", "203.0.113.9, 203.0.113.10", ""},
		{"NUL", "203.0.113.9\x00", ""},
		{"1 MiB", strings.Repeat("1", 1<<20), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := identity.IP(tt.in)
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("IP(%.40q) = %q, %v; want %q", tt.in, got, ok, tt.want)
			}
		})
	}
}

func TestIPPrefix(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bits int
		want string
	}{
		{56, "2001:db8:1:200::"},
		{128, "2001:db8:1:203::1"},
		{64, "2001:db8:1:203::"},
		{0, "2001:db8:1:203::"},
		{129, "2001:db8:1:203::"},
	} {
		if got, ok := identity.IPPrefix("2001:db8:1:203::1", tt.bits); !ok || got != tt.want {
			t.Errorf("IPPrefix(%d bits) = %q, %v; want %q", tt.bits, got, ok, tt.want)
		}
	}
	if got, _ := identity.IPPrefix("::ffff:192.0.2.1", 8); got != "192.0.2.1" {
		t.Errorf("a prefix for IPv6 cut an IPv4 address to %q", got)
	}
}

func TestIPDoesNotAllocate(t *testing.T) {
	for _, s := range []string{"203.0.113.9", "2001:db8:1:2::"} {
		if n := testing.AllocsPerRun(100, func() { identity.IP(s) }); n != 0 {
			t.Errorf("IP(%q) allocates %v times, want 0", s, n)
		}
	}
}

func FuzzIP(f *testing.F) {
	for _, s := range []string{"203.0.113.9:80", "::ffff:c000:201", "[fe80::1%eth0]:443", "junk", "1.2.3.4:_a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := identity.IP(s)
		if !ok {
			if got != "" {
				t.Fatalf("IP(%q) refused and returned %q", s, got)
			}
			return
		}
		if again, ok := identity.IP(got); !ok || again != got {
			t.Fatalf("IP(%q) = %q, but IP of that = %q, %v", s, got, again, ok)
		}
	})
}

// What is one number of an IPv4 address is for package netip to say, though it is
// asked only where ours has found none.
func FuzzIPv4IsThatOfNetip(f *testing.F) {
	for _, s := range []string{
		"0.0.0.0", "255.255.255.255", "1.2.3.256", "1.2.3.999", "1.2.3.1000", "00.1.2.3", "1.2.03.4", "1.2.3.00",
		"1.2.3", "1.2.3.", ".1.2.3", "1..2.3", "1.2.3.4.", "1.2.3.4.5", "1.2.3.4x", "x1.2.3.4", "1.2.3./", "+1.2.3.4",
		"1.2.3.4%eth0", "\xb1.2.3.4", "1.2.3.4\x00", "1:2.3.4", "1.2.3.4:5", "", "1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := ""
		if addr, err := netip.ParseAddr(s); err == nil && addr.Is4() {
			want = addr.String()
		} else if strings.ContainsAny(s, ":[ \t") {
			return // an address with a port, or another one
		}
		for _, s := range []string{s, s + ":65535", " " + s + " "} {
			if got, ok := identity.IP(s); got != want || ok != (want != "") {
				t.Fatalf("IP(%q) = %q, %v; want %q", s, got, ok, want)
			}
		}
	})
}
