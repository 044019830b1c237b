//go:build unix

package nodes

import (
	"errors"
	"syscall"
)

const processesSupported = true

const (
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// signal goes to the whole process group. A process that has ended meanwhile is no error: the caller sees its
// end anyway, where it matters.
func (r *run) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-r.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
