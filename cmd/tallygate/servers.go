package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// lookWithin bounds how long the connecting of a look at the store may take.
const lookWithin = 5 * time.Second

func storeCommand(env []string) *cobra.Command {
	group := &cobra.Command{Use: "store", Short: "The store's servers", Args: noArgs, RunE: help}
	check := &cobra.Command{
		Use:   "check",
		Short: "Look at every primary of the store and tell what breaks limits there",
		Long: "Look at every primary of the store and tell what breaks limits there: settings, rights, clocks,\n" +
			"memory. Nothing is written. The exit code is 1 if a primary cannot be reached or the script does\n" +
			"not run there, so that rules that fail closed refuse; other findings leave it 0.",
		Example: "  tallygate store check --store redis://10.0.0.5:6379",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return storeCheck(cmd, env) },
	}
	slot := &cobra.Command{
		Use:   "slot KEY…",
		Short: "Tell which server holds the buckets of a key",
		Long: "Tell which slot and which server hold the buckets of a key, and how they are named there.\n" +
			"Several KEY are the values of one key, for a rule that counts by several names, in its order.\n" +
			"With --rule, and rules to read, each is written as that rule counts it: addresses in their one form.",
		Example: "  tallygate store slot acct_7Q2 --domain public-api --store redis://10.0.0.5:6379",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > rules.MaxIdentity {
				return usagef("%s takes the 1 to %d values of a key, not %d", cmd.CommandPath(), rules.MaxIdentity, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return storeSlot(cmd, env, args) },
	}
	slot.Flags().String("domain", rules.DefaultDomain, "domain of the rules that count the key")
	slot.Flags().String("rule", "", "rule that counts the key (default any)")
	for _, cmd := range []*cobra.Command{check, slot} {
		addFlags(cmd, looking)
		addOutput(cmd)
		group.AddCommand(cmd)
	}
	return group
}

// look opens the store of the settings to look at it. It writes nothing there.
func look(ctx context.Context, v *values) (*redisstore.Store, error) {
	if v.String("store") == "memory" {
		return nil, usagef("the store is memory: each process counts for itself, and there is no server to look at; name one with --store or TALLYGATE_STORE")
	}
	conf, err := redisConfig(v, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	conf.NoBeats = true
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	s, err := redisstore.New(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("the store cannot be used: %w\n%s", err, whatToCheck(err))
	}
	return s, nil
}

// whatToCheck says what an operator looks at who was told err.
func whatToCheck(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		return "check store-username and store-password (or its -file) against ACL LIST on the server"
	case strings.Contains(text, "NOPERM"):
		return "check the user's rights against those that docs/store.md lists"
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls:"):
		return "check store-ca-file, store-cert-file and store-key-file, and that the scheme is rediss"
	case strings.Contains(text, "CLUSTERDOWN"):
		return "check 'redis-cli --cluster check': slots have no owner, or most primaries are gone"
	case unreachable(err):
		return "check that the servers run, that the address and port are theirs, and that nothing between drops connections"
	default:
		return "check the address, and what listens there"
	}
}

// shownServer and shownFinding are what store check -o json shows.
type shownServer struct {
	Address       string   `json:"address"`
	Role          string   `json:"role,omitempty"`
	Version       string   `json:"version,omitempty"`
	Slots         int      `json:"slots,omitempty"`
	Replicas      []string `json:"replicas,omitempty"`
	RoundTripMS   float64  `json:"round_trip_ms"`
	ClockOffsetMS int64    `json:"clock_offset_ms"`
	Error         string   `json:"error,omitempty"`
}

type shownFinding struct {
	Server  string `json:"server,omitempty"`
	Level   string `json:"level"`
	Setting string `json:"setting"`
	Value   string `json:"value,omitempty"`
	Message string `json:"message"`
}

func storeCheck(cmd *cobra.Command, env []string) error {
	v, err := load(cmd, env)
	if err != nil {
		return err
	}
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	s, err := look(cmd.Context(), v)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	servers, found, failed := s.Inspect(cmd.Context())
	if asData {
		err = writeData(cmd, showStore(servers, found))
	} else {
		err = printStore(cmd, servers, found)
	}
	if err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("%w\n%s", failed, whatToCheck(failed))
	}
	if n := brokenOf(found); n > 0 {
		return fmt.Errorf("%s of level broken: checks get no answer there, and rules that fail closed refuse", count(n, "finding"))
	}
	return nil
}

func brokenOf(found []redisstore.Finding) (n int) {
	for _, f := range found {
		if f.Level == redisstore.Broken {
			n++
		}
	}
	return n
}

func showStore(servers []redisstore.Server, found []redisstore.Finding) any {
	shown := struct {
		Servers  []shownServer  `json:"servers"`
		Findings []shownFinding `json:"findings"`
	}{Servers: []shownServer{}, Findings: []shownFinding{}}
	for _, s := range servers {
		one := shownServer{
			Address: s.Addr, Role: s.Role, Version: s.Version, Slots: s.Slots, Replicas: s.Replicas,
			RoundTripMS: float64(s.RoundTrip.Microseconds()) / 1000, ClockOffsetMS: s.ClockOffset.Milliseconds(),
		}
		if s.Err != nil {
			one.Error = s.Err.Error()
		}
		shown.Servers = append(shown.Servers, one)
	}
	for _, f := range found {
		shown.Findings = append(shown.Findings, shownFinding{Server: f.Shard, Level: string(f.Level), Setting: f.Setting, Value: f.Value, Message: f.Message})
	}
	return shown
}

func printStore(cmd *cobra.Command, servers []redisstore.Server, found []redisstore.Finding) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PRIMARY\tROLE\tVERSION\tSLOTS\tREPLICAS\tROUND TRIP\tCLOCK")
	for _, s := range servers {
		slots, trip, clock := "-", "-", "-"
		if s.Slots > 0 {
			slots = strconv.Itoa(s.Slots)
		}
		if s.Err == nil {
			trip, clock = s.RoundTrip.Round(10*time.Microsecond).String(), s.ClockOffset.String()
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.Addr, cmp.Or(s.Role, "-"), cmp.Or(s.Version, "-"), slots, len(s.Replicas), trip, clock)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	_, err := fmt.Fprintln(out)
	for _, f := range together(found, len(servers)) {
		_, err = fmt.Fprintf(out, "%s: %s\n", f.Level, f)
	}
	if len(found) == 0 {
		_, err = fmt.Fprintln(out, "nothing to say: the store is set as it should be")
	}
	return err
}

// together makes one of the findings that differ by their server only: a cluster is
// mostly set alike.
func together(found []redisstore.Finding, servers int) []redisstore.Finding {
	where := map[redisstore.Finding][]string{}
	var order []redisstore.Finding
	for _, f := range found {
		shard := f.Shard
		f.Shard = ""
		if where[f] == nil {
			order = append(order, f)
		}
		where[f] = append(where[f], shard)
	}
	for i, f := range order {
		order[i].Shard = strings.Join(where[f], ", ")
		if n := len(where[f]); n > 1 && n == servers {
			order[i].Shard = "all primaries"
		}
	}
	return order
}

// placed is what store slot shows.
type placed struct {
	Key      string   `json:"key"`
	Cluster  bool     `json:"cluster"`
	Slot     *int     `json:"slot,omitempty"`
	Primary  string   `json:"primary"`
	Replicas []string `json:"replicas,omitempty"`
	Advice   string   `json:"advice"`
	Move     []string `json:"move,omitempty"`
}

func storeSlot(cmd *cobra.Command, env []string, parts []string) error {
	v, err := load(cmd, env)
	if err != nil {
		return err
	}
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	bucket, err := bucketOf(cmd, v, parts)
	if err != nil {
		return err
	}
	s, err := look(cmd.Context(), v)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	p := place(s, bucket)
	if asData {
		return writeData(cmd, p)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "KEY\t%s\n", p.Key)
	if p.Slot != nil {
		_, _ = fmt.Fprintf(w, "SLOT\t%d\n", *p.Slot)
	}
	_, _ = fmt.Fprintf(w, "PRIMARY\t%s\n", cmp.Or(p.Primary, "-"))
	if p.Cluster {
		_, _ = fmt.Fprintf(w, "REPLICAS\t%s\n", cmp.Or(strings.Join(p.Replicas, ", "), "-"))
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", p.Advice)
	for _, line := range p.Move {
		_, _ = fmt.Fprintf(w, "  %s\n", line)
	}
	return w.Flush()
}

// anyRule stands for a rule's name where none was given.
const anyRule = "RULE"

// bucketOf is the bucket that the arguments name. A rule that can be read says in
// what form it counts the values; without one they are taken as they stand.
func bucketOf(cmd *cobra.Command, v *values, parts []string) (store.Bucket, error) {
	domain, _ := cmd.Flags().GetString("domain")
	id, _ := cmd.Flags().GetString("rule")
	if slices.Contains(parts, "") {
		return store.Bucket{}, usagef("a value of the key is empty")
	}
	b := store.Bucket{Domain: domain, Rule: cmp.Or(id, anyRule), Key: rules.Key(parts)}
	where := v.String("rules")
	if id == "" || v.origin["rules"] == "default" && missing(strings.TrimPrefix(where, sqliteScheme)) {
		return b, nil
	}
	set, problems, err := readRules(cmd.Context(), v)
	if err != nil {
		return b, fmt.Errorf("rules: %w", errors.Join(err, problems))
	}
	snapshot, _ := rules.Compile(nil, set, 1, time.Now())
	rule := snapshot.Rule(id)
	if rule == nil {
		var ids []string
		for _, c := range snapshot.Rules() {
			ids = append(ids, c.ID())
		}
		return b, usagef("--rule: there is no rule %q in %s%s", id, maskURL(where), didYouMean(id, ids))
	}
	if cmd.Flags().Changed("domain") && domain != rule.Domain() {
		return b, usagef("--rule %s is of domain %q, not %q", id, rule.Domain(), domain)
	}
	b.Domain = rule.Domain()
	if b.Key, err = rule.KeyOf(parts); err != nil {
		return b, usageError{err}
	}
	return b, nil
}

// place says where a bucket lies and how to move it.
func place(s *redisstore.Store, b store.Bucket) placed {
	at := s.Place(b)
	p := placed{Key: at.Key, Cluster: at.Cluster, Primary: at.Primary.Addr, Replicas: at.Primary.Replicas}
	if !at.Cluster {
		p.Advice = "There is one server, which holds all keys."
		return p
	}
	p.Slot = &at.Slot
	to := roomiest(s.Primaries(), at.Primary)
	switch {
	case at.Primary.Addr == "":
		p.Advice = "Nobody is known to serve this slot; see 'tallygate store check'."
	case to.Addr == "":
		p.Advice = "There is one primary, so there is nowhere to move the slot."
	default:
		p.Advice = fmt.Sprintf("To move slot %d, and all keys in it, to %s, which has the fewest slots of the others:", at.Slot, to.Addr)
		p.Move = []string{
			fmt.Sprintf("%s cluster setslot %d importing %s", client(to.Addr), at.Slot, at.Primary.ID),
			fmt.Sprintf("%s cluster setslot %d migrating %s", client(at.Primary.Addr), at.Slot, to.ID),
			"redis-cli --cluster fix " + to.Addr,
		}
	}
	return p
}

// client is how redis-cli is told an address.
func client(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "redis-cli -h " + addr
	}
	return "redis-cli -h " + host + " -p " + port
}

// roomiest is the other primary with the fewest slots, the zero Node if there is none.
func roomiest(all []redisstore.Node, not redisstore.Node) (least redisstore.Node) {
	for _, n := range all {
		if n.Addr != not.Addr && (least.Addr == "" || n.Slots < least.Slots) {
			least = n
		}
	}
	return least
}
