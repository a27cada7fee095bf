//go:build unix && !linux

package redistest

import "syscall"

// dieWithParent has no equivalent here: a server outlives a test binary that is
// killed before its cleanup.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
