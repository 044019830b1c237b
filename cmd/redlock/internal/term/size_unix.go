//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package term

import (
	"os"
	"syscall"
	"unsafe"
)

// size asks the terminal; it returns ok false if there is none.
func size(file *os.File) (columns, rows int, ok bool) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	var window struct{ rows, columns, _, _ uint16 }
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&window)))
	})
	return int(window.columns), int(window.rows), err == nil && errno == 0
}
