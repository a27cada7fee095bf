package gateways_test

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that forked it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
