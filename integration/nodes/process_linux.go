package nodes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// isolate gives the process a group of its own, so that Ctrl-C at the terminal reaches only the test, which
// then ends it; and if the test cannot, the kernel does.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// processStat returns the fields of /proc/pid/stat from the third, the state, on. The second, the program's name
// in parentheses, may hold anything, parentheses and spaces included.
func processStat(pid int) ([][]byte, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, false
	}
	return bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]), true
}

// processState returns the state letter of ps.
func processState(pid int) (state byte, known bool) {
	fields, ok := processStat(pid)
	if !ok || len(fields) == 0 {
		return 0, false
	}
	return fields[0][0], true
}

// processBirth tells a process from a later one with the same id: the time of its start, in ticks since boot.
func processBirth(pid int) (birth string, alive bool) {
	const starttime = 22 - 3 // field 22 of the file, of which processStat leaves out two, counted from 0
	fields, ok := processStat(pid)
	if !ok || len(fields) <= starttime {
		return "", false
	}
	return string(fields[starttime]), true
}

// canSweep says whether processBirth is to be trusted.
const canSweep = true
