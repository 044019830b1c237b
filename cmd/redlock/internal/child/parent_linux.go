package child

import "syscall"

// dieWithParent lets the kernel kill the command when this process ends
// without having done so. It does not kill what the command has started, nor a
// command that changes its user on execution.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
