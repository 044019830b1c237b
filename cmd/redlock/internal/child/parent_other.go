//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package child

import "syscall"

// dieWithParent does nothing: only Linux tells a command of its parent's end.
func dieWithParent(*syscall.SysProcAttr) {}
