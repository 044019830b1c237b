package main

import (
	"os/exec"
	"syscall"
)

// isolate keeps Ctrl-C from the server, which this program ends itself; and if it cannot, the kernel does. The
// kernel's promise is about the thread that started the child, but nothing in this program ends threads.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
