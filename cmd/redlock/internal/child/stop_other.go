//go:build dragonfly || freebsd || netbsd || openbsd || (linux && (mips || mipsle || mips64 || mips64le))

package child

import "syscall"

// awaitStop does not see that a process was stopped: the caller of a command
// that is stopped from the terminal goes on waiting for it.
func awaitStop(int) (signal syscall.Signal, stopped bool) { return 0, false }
