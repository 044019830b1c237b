//go:build unix && !linux

package nodes

import (
	"os/exec"
	"syscall"
)

// isolate gives the process a group of its own. Nothing ends it here when the test is killed with SIGKILL.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

func processState(int) (state byte, known bool) { return 0, false }

func processBirth(int) (birth string, alive bool) { return "", false }

const canSweep = false
