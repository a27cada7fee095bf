//go:build !linux

package pgtest

import "syscall"

func dieWithParent(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: who}
}
