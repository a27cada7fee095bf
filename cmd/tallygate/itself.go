package main

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// followsItself refuses rules that are behind this process's own admin port: it would
// wait for ever for what it serves itself.
func (v *values) followsItself() error {
	where, admin := v.String("rules"), v.String("admin")
	if !remoteRules(where) || admin == "" {
		return nil
	}
	u, err := url.Parse(where)
	if err != nil {
		return nil //nolint:nilerr // who opens it says what is wrong with it
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	at := strings.LastIndexByte(admin, ':') // the setting is an address
	if !samePort(port, admin[at+1:]) || !sameHost(host, strings.Trim(admin[:at], "[]")) {
		return nil
	}
	return usagef("%s: %s is this process's own admin port (%s %s), and nobody can follow themselves: "+
		"name where the rules are, such as sqlite:tallygate.db, or set --admin to another address if a control plane runs there",
		v.where("rules"), maskURL(where), v.where("admin"), admin)
}

func samePort(a, b string) bool {
	one, err := strconv.ParseUint(a, 10, 16)
	other, otherErr := strconv.ParseUint(b, 10, 16)
	return err == nil && otherErr == nil && one == other && one > 0 // 0 picks a free one
}

// sameHost reports whether a URL's host reaches a listener's. Two other addresses of
// 127.0.0.0/8 are two hosts: one may have a control plane.
func sameHost(host, listener string) bool {
	host, listener = plainHost(host), plainHost(listener)
	if listener == anyHost {
		return host == anyHost || host == thisHost || strings.HasPrefix(host, "127.")
	}
	if host == anyHost {
		host = thisHost // where connections to it go
	}
	return host == listener
}

const (
	anyHost  = "*"
	thisHost = "localhost"
)

// plainHost is a host in the one form of its spellings.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	address, err := netip.ParseAddr(host)
	if err != nil {
		if host == "" {
			return anyHost
		}
		return host
	}
	switch address = address.Unmap().WithZone(""); {
	case address.IsUnspecified():
		return anyHost
	case address == netip.IPv6Loopback() || address == netip.AddrFrom4([4]byte{127, 0, 0, 1}):
		return thisHost
	default:
		return address.String()
	}
}
