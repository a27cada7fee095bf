//go:build !linux

package gateways_test

import "syscall"

// dieWithParent is for Linux only: elsewhere a killed test binary leaves its children.
func dieWithParent() *syscall.SysProcAttr { return nil }
