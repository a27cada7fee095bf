package pgtest

import "syscall"

// dieWithParent makes the kernel end the server when the thread that forked it
// ends: see Server.Start, which keeps that thread.
func dieWithParent(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGQUIT}
}
