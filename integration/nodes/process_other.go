//go:build !unix

package nodes

import (
	"errors"
	"os/exec"
	"syscall"
)

// Without Unix signals there is no way to stop a server in the orderly way, nor to pause it.
const processesSupported = false

const (
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
	sigStop = syscall.Signal(-1)
	sigCont = syscall.Signal(-1)
)

func (*run) signal(syscall.Signal) error { return errors.ErrUnsupported }

func isolate(*exec.Cmd) {}

func processState(int) (state byte, known bool) { return 0, false }

func processBirth(int) (birth string, alive bool) { return "", false }

const canSweep = false
