package redisstore

import (
	"context"
	"strings"
	"testing"
)

// OpenVirtual opens a store whose script takes its time from the keys
// tg:clock:s and tg:clock:us, which moves on by 1 µs a call, and whose buckets do not expire by the server's
// clock, which a virtual one does not follow. Each is one line of the script.
func OpenVirtual(t testing.TB, conf Config) *Store {
	t.Helper()
	s, err := newStore(context.Background(), conf, newScript(virtual(t, tally().text)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func virtual(t testing.TB, text string) string {
	t.Helper()
	const timeless = `local pcall = redis.pcall
local function call(name, ...)
  if name == 'PSETEX' then
    local key, _, state = ...
    return redis.call('SET', key, state)
  end
  if name == 'PEXPIRE' then return 1 end
  return redis.call(name, ...)
end`
	for _, swap := range [][2]string{
		{"local clock = call('TIME')", "local clock = { call('GET', 'tg:clock:s'), call('INCR', 'tg:clock:us') }"},
		{"local call, pcall = redis.call, redis.pcall", timeless},
	} {
		if strings.Count(text, swap[0]) != 1 {
			t.Fatalf("the script has not exactly one %q", swap[0])
		}
		text = strings.Replace(text, swap[0], swap[1], 1)
	}
	return text
}

// FirstDial is how long New waits for a first connection.
const FirstDial = firstDial

// ScriptText is the script as it is sent.
func (s *Store) ScriptText() string { return s.script.text }

// Beaten returns the last beat that each shard has acknowledged, by address, and
// BeatKey what it is called.
func (s *Store) Beaten() map[string]int64 {
	beaten := map[string]int64{}
	for _, h := range s.topology.shards() {
		h.mu.Lock()
		beaten[h.addr] = h.marks.acked
		h.mu.Unlock()
	}
	return beaten
}

// BeatKey is the name of the beat at a shard.
func (s *Store) BeatKey(addr string) string {
	h := s.topology.shardAt(addr)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.marks.key(s.conf.Pod)
}
