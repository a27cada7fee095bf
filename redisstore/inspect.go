package redisstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// oldest is the first Redis release the script is meant for.
	oldest = "6.2"
	// mostOffset is how far the server's clock may be from this machine's. Counting
	// takes the server's only, but then one of the two is wrong.
	mostOffset = time.Second
	// mostNodeTimeout is the longest time that a cluster should wait before it takes
	// a primary for lost: a failover takes about 1.35 times that and a second.
	mostNodeTimeout = 5 * time.Second
	// mostMemoryPercent of maxmemory is where the headroom begins that a flood of new
	// keys needs.
	mostMemoryPercent = 80

	primary, replica = "primary", "replica"
	yes              = "yes"
)

// clock measures the round trip and how far the clocks are apart. It is the first
// question, and one that whoever may run the script may ask.
func (a *audit) clock(ctx context.Context) error {
	const times = 3
	for range times {
		before := time.Now()
		parts, err := a.do(ctx, "TIME").AsStrSlice()
		took := time.Since(before)
		if code(err) == "NOPERM" {
			return nil // then the script does not run either, which tells more
		}
		if err != nil {
			return err
		}
		if len(parts) != 2 {
			return fmt.Errorf("TIME: %w", errReply)
		}
		s, err1 := strconv.ParseInt(parts[0], 10, 64)
		us, err2 := strconv.ParseInt(parts[1], 10, 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("TIME: %w", errReply)
		}
		if a.server.RoundTrip == 0 || took < a.server.RoundTrip {
			a.server.RoundTrip = took
			a.server.ClockOffset = time.Unix(s, us*1000).Sub(before.Add(took / 2)).Round(time.Millisecond)
		}
	}
	if off := a.server.ClockOffset; off.Abs() > mostOffset {
		a.add(Warning, "clock", off.String(), "it is so far from this machine's, so one of the two is wrong: calendar windows and reset times go by the server's; have both follow NTP")
	}
	return nil
}

// role asks INFO, not ROLE: a right most users have.
func (a *audit) role(ctx context.Context) {
	text, err := a.do(ctx, "INFO", "replication").ToString()
	if err != nil {
		a.unread("role, version, memory", err, "grant +info, or look by hand")
		return
	}
	a.server.Role = replica
	if field(text, "role") == "master" {
		a.server.Role = primary
	}
	// The primary knows best: a cluster leaves out replicas that were sent nothing yet.
	a.server.Replicas = nil
	for i := range 64 {
		line := field(text, "slave"+strconv.Itoa(i))
		if line == "" {
			return
		}
		at := map[string]string{}
		for pair := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(pair, "=")
			at[name] = value
		}
		a.server.Replicas = append(a.server.Replicas, net.JoinHostPort(at["ip"], at["port"]))
	}
}

// script loads the script and runs it with no bucket.
func (a *audit) script(ctx context.Context) {
	text := a.store.script.text
	if err := a.do(ctx, "SCRIPT", "LOAD", text).Error(); err != nil {
		a.add(Advice, "script load", "", "could not load the script: "+err.Error()+"; without +script|load the first call after a restart sends the whole text")
	}
	err := a.do(ctx, "EVAL", text, "0").Error()
	if err == nil {
		// The name alone is what nearly every call sends.
		err = a.do(ctx, "EVALSHA", a.store.script.sha, "0").Error()
	}
	if err != nil {
		a.add(Broken, "script", "does not run", err.Error()+"; look at the user's rights, and whether the server is Redis "+oldest+" or later")
	}
}

func (a *audit) version(ctx context.Context) {
	if a.server.Role == "" {
		return // INFO may not be read, which was said
	}
	text, err := a.do(ctx, "INFO", "server").ToString()
	a.server.Version = field(text, "redis_version")
	switch {
	case err != nil:
		a.unread("version", err, "make sure that it is "+oldest+" or later")
	case older(a.server.Version, oldest):
		a.add(Warning, "version", a.server.Version, "older than "+oldest+", which this is tested down to; upgrade")
	}
	if field(text, "redis_mode") == "cluster" && !a.store.bySlot {
		a.add(Broken, "cluster", "taken for one server", "it may not be asked who owns the slots: grant +cluster|slots, or all other primaries go unseen")
	}
}

// memory looks at how full the server is.
func (a *audit) memory(ctx context.Context) {
	if a.server.Role == "" {
		return
	}
	text, err := a.do(ctx, "INFO", "memory").ToString()
	used, usedErr := strconv.ParseInt(field(text, "used_memory"), 10, 64)
	most, mostErr := strconv.ParseInt(field(text, "maxmemory"), 10, 64)
	switch {
	case err != nil || usedErr != nil || mostErr != nil:
		a.add(Unread, "memory", "", "could not read how full it is; watch it by hand")
	case most == 0:
		a.add(Warning, "maxmemory", "0", "only the machine bounds it: it is killed, with all counts, where it could refuse; set it below the machine's memory")
	case used*100 > most*mostMemoryPercent:
		a.add(Warning, "memory", fmt.Sprintf("%d %% used", used*100/most), "when it is full, checks that must write are refused: raise maxmemory, or spread the slots over more primaries")
	}
}

func (a *audit) defaultUser(ctx context.Context) {
	rows, err := a.do(ctx, "ACL", "LIST").AsStrSlice()
	if err != nil {
		a.unread("user default", err, "make sure that it is off")
		return
	}
	for _, row := range rows {
		words := strings.Fields(row)
		if len(words) > 2 && words[1] == "default" && words[2] == "on" {
			value := "on"
			if slices.Contains(words, "nopass") {
				value = "on, without a password"
			}
			a.add(Warning, "user default", value, "a client with a wrong password goes on as this user: set 'user default off' and give Tallygate a user of its own")
		}
	}
}

// wanted is a setting of a server and what is said where it is not as it should be.
type wanted struct {
	name string
	// cluster settings count in a cluster only.
	cluster bool
	// faults says by value what is wrong: nothing where level is "".
	faults func(a *audit, value string) (level Level, message string)
}

// wants are the settings that are looked at.
func wants() []wanted {
	return []wanted{
		{"maxmemory-policy", false, func(_ *audit, v string) (Level, string) {
			return unless(v == "noeviction", Warning), "an evicted bucket is a full one: set noeviction and watch memory"
		}},
		{"appendonly", false, func(_ *audit, v string) (Level, string) {
			return unless(v == yes, Warning), "a restarted server forgets its counts and hands out full buckets: set yes for closed rules and quotas, or delay its restart beyond a failover"
		}},
		{"stop-writes-on-bgsave-error", false, func(_ *audit, v string) (Level, string) {
			return unless(v == "no", Warning), "one snapshot that fails, as on a full disk, stops all writes (MISCONF), and with them all checks: set no"
		}},
		{"min-replicas-to-write", false, func(a *audit, v string) (Level, string) {
			// Without a replica it would stop all writes.
			return unless(v != "0" || len(a.server.Replicas) == 0, Advice), "a primary that is cut off goes on taking spends that are lost later: for rules that fail closed set 1, with min-replicas-max-lag of a few seconds"
		}},
		{"cluster-require-full-coverage", true, func(_ *audit, v string) (Level, string) {
			return unless(v == "no", Warning), "one lost shard stops all others: set no"
		}},
		{"cluster-node-timeout", true, func(_ *audit, v string) (Level, string) {
			ms, err := strconv.ParseInt(v, 10, 64)
			timeout := time.Duration(ms) * time.Millisecond
			takes := (timeout*135/100 + time.Second).Round(100 * time.Millisecond)
			return unless(err == nil && timeout <= mostNodeTimeout, Warning), "in ms: a failover takes about 1.35 times that and a second, here " + takes.String() + ", in which its rules' fail modes decide: set 2000 to 5000"
		}},
	}
}

func unless(good bool, level Level) Level {
	if good {
		return ""
	}
	return level
}

// settings reads the settings one by one: before 7.0 CONFIG GET takes one name.
func (a *audit) settings(ctx context.Context) {
	var unread []string
	var last error
	for _, w := range wants() {
		if w.cluster && !a.store.bySlot {
			continue
		}
		m, err := a.do(ctx, "CONFIG", "GET", w.name).AsStrMap()
		if err != nil {
			unread, last = append(unread, w.name), err
			continue
		}
		if level, message := w.faults(a, m[w.name]); level != "" {
			a.add(level, w.name, m[w.name], message)
		}
	}
	if len(unread) > 0 {
		a.unread(strings.Join(unread, ", "), last, "grant +config|get, or look by hand")
	}
}

// field returns a value of INFO's name:value lines.
func field(info, name string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == name {
			return v
		}
	}
	return ""
}

// older reports whether version a comes before b, by major and minor.
func older(a, b string) bool {
	am, an := majorMinor(a)
	bm, bn := majorMinor(b)
	return am < bm || am == bm && an < bn
}

func majorMinor(v string) (major, minor int) {
	parts := strings.SplitN(v, ".", 3)
	major, _ = strconv.Atoi(parts[0])
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	return major, minor
}
