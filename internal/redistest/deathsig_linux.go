package redistest

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that forked it
// ends: see process.run, which keeps that thread.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
