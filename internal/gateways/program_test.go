package gateways_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
)

// tallygate is the program under test. Needed as a variable, since testing hands
// nothing from TestMain to a test.
var tallygate string

// TestMain builds the program: not stripped of paths and not without C as it is shipped,
// so that the work is shared with all that is built before, which takes a minute else.
func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gateways")
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tallygate = filepath.Join(dir, "tallygate")
	cmd := exec.Command("go", "build", "-o", tallygate, "./cmd/tallygate")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "tallygate does not build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// hangs is when what is waited for will not come any more. It is no bound on how long
// anything may take.
const hangs = time.Minute

// child is a program that runs until the test ends.
type child struct {
	process *os.Process
	log     string // file of all that it says
	done    chan struct{}
	err     error // how it ended, once done is closed
}

// spawn starts a program in dir and ends it with the test.
func spawn(t testing.TB, dir, program string, args ...string) *child {
	t.Helper()
	log, err := os.CreateTemp(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	cmd.SysProcAttr = dieWithParent()
	c := &child{log: log.Name(), done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the child dies with the thread that forked it
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.process = cmd.Process
	t.Cleanup(func() {
		if c.signal(os.Interrupt) == nil && !c.ended(5*time.Second) {
			_ = c.process.Kill()
			<-c.done
		}
		_ = log.Close()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(program), c.said())
		}
	})
	return c
}

// signal sends a signal; an error means that the program has ended.
func (c *child) signal(s os.Signal) error { return c.process.Signal(s) }

// ended waits for the end.
func (c *child) ended(within time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(within):
		return false
	}
}

func (c *child) said() string {
	text, _ := os.ReadFile(c.log)
	return string(text)
}

// await waits until the program is ready, and fails the test when it ends before.
func (c *child) await(t testing.TB, what string, ready func() bool) {
	t.Helper()
	await.That(t, what, func() bool {
		if ready() {
			return true
		}
		select {
		case <-c.done:
			t.Fatalf("waiting until %s: it ended: %v", what, c.err)
		default:
		}
		return false
	})
}

// run starts a gateway and waits until it listens at addr.
func run(t testing.TB, dir, addr, program string, args ...string) {
	t.Helper()
	c := spawn(t, dir, program, args...)
	c.await(t, "it listens", func() bool { return listens(t, addr) })
}

func listens(t testing.TB, addr string) bool {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// pod is a running tallygate and the addresses that it told.
type pod struct {
	*child
	http, grpc string // grpc only where it was asked for
}

// told are the lines in which serve and proxy tell where they answer.
var (
	toldHTTP = regexp.MustCompile(`tallygate (?:answers|takes requests) on (?:https?://)?(\S+) `)
	toldGRPC = regexp.MustCompile(`rate limit service on (\S+) \(gRPC\)`)
)

// start runs "tallygate serve" or "tallygate proxy" in dir, on ports that are free.
func start(t testing.TB, dir string, args ...string) *pod {
	t.Helper()
	onGRPC := false
	args = slices.Clip(args)
	if args[0] == "serve" {
		if !slices.Contains(args, "--http") {
			args = append(args, "--http", "127.0.0.1:0")
		}
		onGRPC = strings.Contains(strings.Join(args, " "), "--grpc ")
		if !onGRPC {
			args = append(args, "--grpc=")
		}
	} else {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	p := &pod{child: spawn(t, dir, tallygate, append(args, "--admin=")...)}
	p.await(t, "tallygate tells its addresses", func() bool {
		said := p.said()
		p.http, p.grpc = first(toldHTTP, said), first(toldGRPC, said)
		return p.http != "" && (p.grpc != "" || !onGRPC)
	})
	return p
}

// first is what the expression's group holds, where it is found.
func first(e *regexp.Regexp, text string) string {
	if found := e.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// stop has it end in good order. It may be called twice.
func (p *pod) stop(t testing.TB) {
	t.Helper()
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	p.ends(t)
}

// ends waits until it has ended, with exit code 0.
func (p *pod) ends(t testing.TB) {
	t.Helper()
	if !p.ended(hangs) {
		t.Fatal("tallygate does not end")
	}
	if p.err != nil {
		t.Errorf("tallygate ended with %v", p.err)
	}
}

// documented is the command line that a page of docs prints, without the program's
// name, and so without what a reader would have to guess.
func documented(t testing.TB, page string) []string {
	t.Helper()
	for _, block := range snippets(t, page, "sh") {
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), "&"))
			if len(words) > 1 && filepath.Base(words[0]) == "tallygate" && slices.Contains(words, "--routes-file") {
				return words[1:]
			}
		}
	}
	t.Fatalf("%s has no command with --routes-file", page)
	return nil
}

// tool is a program that scripts/install-gateways.sh has built, or else one that is
// installed.
func tool(t testing.TB, name, install string) string {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "tallygate", "bin", name)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	return need(t, name, install)
}

func client(t testing.TB, name string) string {
	t.Helper()
	return tool(t, name, "scripts/install-gateways.sh clients")
}

// tell runs a client to its end and returns all that it said.
func tell(t testing.TB, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	return string(out), err
}

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
