package rulestoretest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
)

// childOf names the database in the environment of a child that writes to it.
const childOf = "TALLYGATE_RULESTORETEST_CHILD"

// Main runs the tests of a package, or is the child of testKilled: a package that
// runs the suite calls it from TestMain.
func Main(m interface{ Run() int }, open func(name string) (*sqldb.DB, error)) int {
	name := os.Getenv(childOf)
	if name == "" {
		return m.Run()
	}
	store, err := open(name)
	if err == nil {
		err = writeForEver(store)
	}
	_, _ = fmt.Fprintln(os.Stderr, err)
	return 1
}

// writeForEver writes in four goroutines and prints each answer; it returns only
// with an error.
func writeForEver(store *sqldb.DB) error {
	failed := make(chan error)
	var mu sync.Mutex // guards standard output
	for i := range 4 {
		go func() {
			for version := int64(0); ; version++ {
				applied, err := store.Apply(context.Background(), by(), put(fmt.Sprintf("w%d", i), int(version)+1, version))
				if err != nil {
					failed <- err
					return
				}
				mu.Lock()
				_, _ = fmt.Fprintf(os.Stdout, "w%d %d %d\n", i, version+1, applied.Revision)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

// testKilled kills a writer with SIGKILL: what it was answered is there, with its
// audit row, and what it was not answered is there as a whole or not at all.
func testKilled(t *testing.T, h Harness) {
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childOf+"="+h.Name)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		rule              string
		version, revision int64
	}
	var answers []answer
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var a answer
		if n, _ := fmt.Sscan(lines.Text(), &a.rule, &a.version, &a.revision); n != 3 {
			continue // the last line may be cut
		}
		if answers = append(answers, a); len(answers) == 60 {
			_ = child.Process.Kill()
		}
	}
	_ = child.Wait() // killed
	if len(answers) < 60 {
		t.Fatalf("the child ended after %d answers", len(answers))
	}
	store := h.Again(t)
	for _, a := range answers {
		v, err := store.Version(t.Context(), a.rule, a.version)
		if err != nil || v.Revision != a.revision || burstOf(v.Live) != int(a.version) {
			t.Errorf("%+v was answered; got %+v, %v", a, v, err)
		}
	}
	set := h.whole(t)
	for _, r := range set.Rules {
		entries := h.audit(t, rulestore.AuditFilter{Rule: r.ID})
		history, err := store.History(t.Context(), r.ID, 0, rulestore.MaxPage)
		if err != nil || int64(len(entries)) != r.Version || int64(len(history)) != r.Version || r.Revision > set.Revision {
			t.Errorf("%s has version %d, %d audit rows, %d in its history, %v", r.ID, r.Version, len(entries), len(history), err)
		}
	}
	h.apply(t, put("after", 1, 0))
}
