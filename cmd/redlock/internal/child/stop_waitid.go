//go:build darwin || (linux && !mips && !mipsle && !mips64 && !mips64le)

package child

import (
	"syscall"
	"unsafe"
)

// What waitid(2) takes and tells. (On MIPS, siginfo has another order.)
const (
	idPID      = 1 // P_PID
	cldStopped = 5 // CLD_STOPPED
)

type siginfo struct {
	_      [2]int32 // si_signo, si_errno
	code   int32
	change struct {
		_      [0]childInfoAlignment
		_      [2]int32 // si_pid, si_uid
		status int32
	}
	_ [128]byte // what other signals tell
}

// awaitStop waits until a signal stops the process, and says which; or until
// the process ends, which remains to be waited for.
func awaitStop(pid int) (signal syscall.Signal, stopped bool) {
	var info siginfo
	if waitID(pid, &info, syscall.WEXITED|syscall.WSTOPPED|syscall.WNOWAIT) != 0 || info.code != cldStopped {
		return 0, false
	}
	signal = syscall.Signal(info.change.status)
	// Take the news, or the next call would tell it again. It may have been
	// overtaken by others.
	_ = waitID(pid, &info, syscall.WSTOPPED|syscall.WNOHANG)
	return signal, true
}

func waitID(pid int, info *siginfo, options uintptr) syscall.Errno {
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(pid), uintptr(unsafe.Pointer(info)), options, 0, 0)
		if errno != syscall.EINTR {
			return errno
		}
	}
}
