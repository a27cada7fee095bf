package redistest

// What only this package's own tests need.

// Start starts a server without a test to fail.
func Start(dir string, args ...string) (*Server, error) { return startServer(dir, args...) }

// DialPlain connects without TLS.
func DialPlain(addr string) (*Conn, error) { return dial(addr, nil) }

// PID returns the process id of a server.
func PID(s *Server) int { return s.process().cmd.Process.Pid }
