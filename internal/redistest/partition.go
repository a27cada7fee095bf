package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// partition is a set of rules of the kernel's packet filter, in a table that is
// named after this process.
type partition struct {
	table string // "" without one
}

// tablePrefix begins the name of every table of ours; the pid follows.
const tablePrefix = "tallygate_"

// Isolate drops every packet between these nodes and the other ones, either way;
// clients still reach all. It needs root, nft and a kernel that lets us: without,
// the test is skipped, and says so, in CI too, where containers forbid it. Heal,
// Mend and the end of the test binary undo it.
func (c *ProxiedCluster) Isolate(t testing.TB, nodes ...*Server) {
	t.Helper()
	inside := map[*Server]bool{}
	for _, n := range nodes {
		inside[n] = true
	}
	var a, b []string
	for _, n := range c.Nodes {
		if inside[n] {
			a = append(a, n.Host)
		} else {
			b = append(b, n.Host)
		}
	}
	needFilter(t)
	if err := c.partition.cut(a, b); err != nil {
		t.Skip("NOT TESTED: no partition: ", err)
	}
	t.Cleanup(func() { _ = c.partition.heal() })
}

// Heal ends the partition.
func (c *ProxiedCluster) Heal(t testing.TB) {
	t.Helper()
	if err := c.partition.heal(); err != nil {
		t.Fatal(err)
	}
}

func needFilter(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a partition needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("NOT TESTED: a partition needs nft (on Debian: apt-get install nftables)")
	}
}

// cut drops packets between two sets of addresses, where they arrive: a sender
// learns of a drop on the way out.
func (p *partition) cut(a, b []string) error {
	if err := p.heal(); err != nil {
		return err
	}
	sweep()
	table := tablePrefix + strconv.Itoa(os.Getpid())
	left, right := strings.Join(a, ", "), strings.Join(b, ", ")
	rules := fmt.Sprintf(`table ip %s {
	chain arriving {
		type filter hook input priority 0; policy accept;
		ip saddr { %[2]s } ip daddr { %[3]s } drop
		ip saddr { %[3]s } ip daddr { %[2]s } drop
	}
}
`, table, left, right)
	if err := nft(rules); err != nil {
		return err
	}
	p.table = table
	return nil
}

func (p *partition) heal() error {
	if p.table == "" {
		return nil
	}
	err := nft("delete table ip " + p.table + "\n")
	if err == nil {
		p.table = ""
	}
	return err
}

// sweep deletes tables of test binaries that were killed before they could.
func sweep() {
	out, err := exec.Command("nft", "list", "tables", "ip").Output() //nolint:noctx // it takes a moment
	if err != nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		name := strings.TrimPrefix(strings.TrimSpace(line), "table ip ")
		pid, err := strconv.Atoi(strings.TrimPrefix(name, tablePrefix))
		if err == nil && strings.HasPrefix(name, tablePrefix) && syscall.Kill(pid, 0) != nil {
			_ = nft("delete table ip " + name + "\n")
		}
	}
}

// nft runs commands, all or none.
func nft(commands string) error {
	cmd := exec.Command("nft", "-f", "-") //nolint:noctx // it takes a moment
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
