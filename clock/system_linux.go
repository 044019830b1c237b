package clock

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// bootTime is CLOCK_BOOTTIME of clock_gettime(2): CLOCK_MONOTONIC plus the
// time the system was suspended.
const bootTime = 7

type system struct{}

func (system) Elapsed() time.Duration {
	var now syscall.Timespec
	// The raw form: the call cannot block, so the scheduler need not know.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		// Linux has had this clock since 2.6.39. Falling back to one that
		// sleeps with the machine would silently void the safety claim.
		panic(fmt.Sprintf("clock: CLOCK_BOOTTIME cannot be read: %v", errno))
	}
	return time.Duration(now.Nano())
}

func (system) Now() time.Time { return time.Now() }
