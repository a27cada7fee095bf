package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// Finding is one thing about a server that an operator should know before its
// counts are relied on.
type Finding struct {
	// Shard is the server's address.
	Shard string
	// Setting is what was looked at, Value what it is; "" if it could not be read.
	Setting, Value string
	// Message says what follows and what to do.
	Message string
}

// String returns the finding as one line.
func (f Finding) String() string {
	if f.Value == "" {
		return fmt.Sprintf("%s: %s: %s", f.Shard, f.Setting, f.Message)
	}
	return fmt.Sprintf("%s: %s is %q: %s", f.Shard, f.Setting, f.Value, f.Message)
}

// oldest is the first Redis release the script is meant for.
const oldest = "6.2"

// Audit reads the settings of every primary, runs the script there once with
// nothing to do, and returns what an operator should know. Settings it has no
// right to read are findings too. It fails only if no server can be asked.
func (s *Store) Audit(ctx context.Context) ([]Finding, error) {
	var found []Finding
	asked := 0
	var last error
	for _, h := range s.topology.shards() {
		a := audit{shard: h.addr}
		primary := false
		var err error
		if a.node, err = h.slow.node.ready(); err == nil {
			primary, err = a.isPrimary(ctx)
		}
		if err != nil {
			last = err
			a.add("reachable", "", err.Error())
		} else if primary {
			asked++
			a.all(ctx, s)
		}
		found = append(found, a.found...)
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return strings.Compare(a.Shard+a.Setting, b.Shard+b.Setting)
	})
	if asked == 0 {
		return found, fmt.Errorf("no primary could be asked: %w", last)
	}
	return found, nil
}

type audit struct {
	shard string
	node  rueidis.Client
	found []Finding
}

func (a *audit) add(setting, value, message string) {
	a.found = append(a.found, Finding{Shard: a.shard, Setting: setting, Value: value, Message: message})
}

func (a *audit) do(ctx context.Context, words ...string) rueidis.RedisResult {
	return a.node.Do(ctx, a.node.B().Arbitrary(words...).Build())
}

// isPrimary asks INFO, not ROLE: a right most users have.
func (a *audit) isPrimary(ctx context.Context) (bool, error) {
	text, err := a.do(ctx, "INFO", "replication").ToString()
	if code(err) == "NOPERM" {
		a.add("role", "", "could not read INFO; grant +info, or these checks are skipped for replicas too")
		return true, nil
	}
	return field(text, "role") == "master", err
}

func (a *audit) all(ctx context.Context, s *Store) {
	a.runs(ctx, s.script)
	a.version(ctx)
	a.eviction(ctx)
	a.persistence(ctx)
	a.defaultUser(ctx)
	if s.bySlot {
		a.coverage(ctx)
	}
}

// runs loads the script and runs it with no bucket.
func (a *audit) runs(ctx context.Context, sc script) {
	if err := a.do(ctx, "SCRIPT", "LOAD", sc.text).Error(); err != nil {
		a.add("script", "", "could not load it: "+err.Error()+"; without +script|load the first call after a restart sends the whole text")
	}
	if err := a.do(ctx, "EVAL", sc.text, "0").Error(); err != nil {
		a.add("script", "", "it does not run here: "+err.Error())
	}
}

func (a *audit) version(ctx context.Context) {
	text, err := a.do(ctx, "INFO", "server").ToString()
	v := field(text, "redis_version")
	switch {
	case err != nil:
		a.add("version", "", "could not read: "+err.Error())
	case older(v, oldest):
		a.add("version", v, "older than "+oldest+", which this is tested down to; upgrade")
	}
}

// config reads one setting; ok is false if it may not be read.
func (a *audit) config(ctx context.Context, name string) (value string, ok bool) {
	m, err := a.do(ctx, "CONFIG", "GET", name).AsStrMap()
	if err != nil {
		a.add(name, "", "could not read: "+err.Error()+"; check it by hand")
		return "", false
	}
	return m[name], true
}

func (a *audit) eviction(ctx context.Context) {
	policy, ok := a.config(ctx, "maxmemory-policy")
	if ok && policy != "noeviction" {
		a.add("maxmemory-policy", policy, "an evicted bucket is a full one: set noeviction and watch memory")
	}
}

func (a *audit) persistence(ctx context.Context) {
	aof, ok := a.config(ctx, "appendonly")
	if ok && aof != "yes" {
		a.add("appendonly", aof, "a restarted server forgets its counts and hands out full buckets: set yes for closed rules and quotas, or delay its restart beyond a failover")
	}
}

func (a *audit) coverage(ctx context.Context) {
	full, ok := a.config(ctx, "cluster-require-full-coverage")
	if ok && full != "no" {
		a.add("cluster-require-full-coverage", full, "one lost shard stops all others: set no")
	}
}

func (a *audit) defaultUser(ctx context.Context) {
	rows, err := a.do(ctx, "ACL", "LIST").AsStrSlice()
	if err != nil {
		a.add("user default", "", "could not read: "+err.Error()+"; make sure that it is off")
		return
	}
	for _, row := range rows {
		words := strings.Fields(row)
		if len(words) > 2 && words[1] == "default" && words[2] == "on" {
			value := "on"
			if slices.Contains(words, "nopass") {
				value = "on, without a password"
			}
			a.add("user default", value, "a client with a wrong password goes on as this user: set 'user default off' and give Tallygate a user of its own")
		}
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
