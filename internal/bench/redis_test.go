package bench_test

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

//go:embed published.lua
var published string

const callers = 128

// pair is the two buckets of one account.
func pair(account int, want int64) []store.Op {
	key := "acct_" + strconv.Itoa(account)
	growth := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100_000, PeriodMS: 1000, Burst: 200_000, Revision: 4}
	labels := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100_000, PeriodMS: 1000, Burst: 100_000, Revision: 4}
	bucket := func(rule string) store.Bucket { return store.Bucket{Domain: "public-api", Rule: rule, Key: key} }
	return []store.Op{
		{Bucket: bucket("growth-global"), Limit: growth, Cost: 1, Want: want, Pods: 50, MaxCost: 1},
		{Bucket: bucket("labels-route"), Limit: labels, Cost: 1, Want: want, Pods: 50, MaxCost: 1},
	}
}

// together runs f n times from many goroutines and returns calls a second.
func together(t *testing.T, f func(i int) error) func(n int) float64 {
	t.Helper()
	return func(n int) float64 {
		each := n/callers + 1
		start := time.Now()
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := range each {
					if err := f(c*each + i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(each*callers) / time.Since(start).Seconds()
	}
}

func testRedisThroughput(t *testing.T) {
	server := redistest.Standalone(t)
	url := "redis://" + server.Addr
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: url, Tags: identity.NewHasher(nil), Deadline: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true, DisableRetry: true, PipelineMultiplex: 1, ClientSetInfo: rueidis.DisableClientSetInfo})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	checks := make([][]store.Op, 1000)
	type evalsha struct{ keys, args []string }
	bare := make([]evalsha, len(checks))
	var sha string
	for i := range checks {
		checks[i] = pair(i, 0)
		sha, bare[i].keys, bare[i].args = s.Wire(checks[i])
	}
	ours := together(t, func(i int) error {
		_, err := s.Take(context.Background(), checks[i%len(checks)])
		return err
	})
	yard := together(t, func(i int) error {
		e := &bare[i%len(bare)]
		return client.Do(context.Background(), client.B().Evalsha().Sha1(sha).Numkeys(2).Key(e.keys...).Arg(e.args...).Build()).Error()
	})
	ours(callers) // loads the script
	got := interleave(sample{"evalsha", yard}, sample{"take", ours})
	row(t, "Redis, exact check of two buckets / bare EVALSHA", got[1], got[0], "calls/s", atLeast(0.85), got[1] >= 0.85*got[0])
}

// piped sends commands in one pipeline and measures the server's CPU time.
type piped struct {
	t      *testing.T
	server *redistest.Server
	conn   net.Conn
	in     *bufio.Reader
}

func (p *piped) cpuPerCall(command func(i int) []string) func(n int) float64 {
	const batch = 500
	return func(n int) float64 {
		before, sent := mainThreadCPU(p.t, p.server), 0
		for sent < n {
			var b strings.Builder
			for i := range batch {
				words := command(sent + i)
				fmt.Fprintf(&b, "*%d\r\n", len(words))
				for _, w := range words {
					fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
				}
			}
			if _, err := p.conn.Write([]byte(b.String())); err != nil {
				p.t.Fatal(err)
			}
			for range batch {
				p.skip()
			}
			sent += batch
		}
		return (mainThreadCPU(p.t, p.server) - before) / float64(sent) * 1e6
	}
}

// skip reads one answer and fails on an error.
func (p *piped) skip() {
	line, err := p.in.ReadString('\n')
	if err != nil || line[0] == '-' {
		p.t.Fatalf("%q, %v", line, err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$':
		if _, err := p.in.Discard(n + 2); err != nil {
			p.t.Fatal(err)
		}
	case '*':
		for range n {
			p.skip()
		}
	}
}

// mainThreadCPU returns the seconds a server's main thread has worked.
func mainThreadCPU(t *testing.T, server *redistest.Server) float64 {
	t.Helper()
	info, err := server.Info("cpu")
	if err != nil {
		t.Fatal(err)
	}
	user, _ := strconv.ParseFloat(info["used_cpu_user_main_thread"], 64)
	sys, _ := strconv.ParseFloat(info["used_cpu_sys_main_thread"], 64)
	return user + sys
}

func testRedisCPU(t *testing.T) {
	server := redistest.Standalone(t)
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: "redis://" + server.Addr, Tags: identity.NewHasher(nil), Deadline: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Audit(context.Background()); err != nil { // loads the script
		t.Fatal(err)
	}
	sha, _ := server.MustDo(t, "SCRIPT", "LOAD", published).(string)
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	p := &piped{t: t, server: server, conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}

	wire := func(prefix int, want int64) func(int) []string {
		commands := make([][]string, 2000)
		for i := range commands {
			name, keys, args := s.Wire(pair(prefix+i, want))
			commands[i] = slices.Concat([]string{"EVALSHA", name, "2"}, keys, args)
		}
		return func(i int) []string { return commands[i%len(commands)] }
	}
	yard := make([][]string, 2000)
	for i := range yard {
		_, keys, _ := s.Wire(pair(1_000_000+i, 0))
		yard[i] = slices.Concat([]string{"EVALSHA", sha, "2"}, keys, []string{"100000", "200000", "100000", "100000", "1"})
	}
	got := interleave(
		sample{"published", p.cpuPerCall(func(i int) []string { return yard[i%len(yard)] })},
		sample{"exact", p.cpuPerCall(wire(2_000_000, 0))},
		sample{"lease", p.cpuPerCall(wire(3_000_000, 20))},
	)
	row(t, "Redis CPU, two buckets, exact / published script", got[1], got[0], "us", atMost(1.0), got[1] <= got[0])
	row(t, "Redis CPU, two buckets, with leases / published script", got[2], got[0], "us", atMost(1.2), got[2] <= 1.2*got[0])
}
