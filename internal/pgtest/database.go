package pgtest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// template is the database that those of the tests are copies of.
const template = "tallygate_template"

// Main runs a package's tests, a *testing.M, and then stops the server they
// shared. It returns the exit code.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.Kill()
		shared.server.remove()
	}
	return code
}

// shared is what the tests of this binary have in common. Needed as a variable,
// since testing hands nothing from TestMain to a test.
var shared struct { //nolint:gochecknoglobals // see above
	mu       sync.Mutex // guards what follows; held while a template is copied
	server   *Server
	err      error
	prepared bool
	number   atomic.Int64
}

// Database makes a database for this test and returns its URL for the superuser
// postgres. prepare, such as migrations, is run once in a test binary, on the
// template of all of them; it must leave no connection open. Nil means none.
func Database(t testing.TB, prepare func(url string) error) string {
	t.Helper()
	bin := need(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start(bin)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	s := shared.server
	if !shared.prepared {
		s.mustSQL(t, "postgres", "CREATE DATABASE "+template)
		if prepare != nil {
			if err := prepare(s.URL("postgres", template)); err != nil {
				t.Fatalf("the template: %v", err)
			}
		}
		shared.prepared = true
	}
	name := "test_" + strconv.FormatInt(shared.number.Add(1), 10)
	s.mustSQL(t, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template)
	return s.URL("postgres", name)
}

// New starts a server of this test alone, to be killed and started again.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := start(need(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		s.remove()
	})
	return s
}

// SQL runs statements as the superuser, one by one.
func (s *Server) SQL(database string, statements ...string) error {
	for _, statement := range statements {
		out, err := exec.Command(filepath.Join(s.bin, "psql"), //nolint:gosec,noctx // a fixed program with the test's statements
			"-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", s.URL("postgres", database), "-c", statement).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", statement, err, out)
		}
	}
	return nil
}

func (s *Server) mustSQL(t testing.TB, database, statement string) {
	t.Helper()
	if err := s.SQL(database, statement); err != nil {
		t.Fatal(err)
	}
}
