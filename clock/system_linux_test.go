package clock_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
)

// From linux/time.h.
const (
	clockMonotonic = 1 // stands still while the machine is suspended
	clockBootTime  = 7
)

func gettime(t *testing.T, id int) time.Duration {
	t.Helper()
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0)
	require.Zero(t, errno, "clock_gettime: %v", errno)
	return time.Duration(ts.Nano())
}

// A machine that was never suspended shows no difference between the two
// clocks, so the number itself is asserted.
func TestSystemReadsTheClockThatCountsSuspension(t *testing.T) {
	require.Equal(t, clockBootTime, clock.BootTime)

	system := clock.System()
	for range 100 {
		before := gettime(t, clockBootTime)
		now := system.Elapsed()
		after := gettime(t, clockBootTime)
		require.GreaterOrEqual(t, now, before)
		require.LessOrEqual(t, now, after)
	}
	monotonic := gettime(t, clockMonotonic)
	assert.GreaterOrEqual(t, system.Elapsed(), monotonic, "the clock that stands still has counted more")
}

// /proc/uptime is the same clock by another way, in hundredths of a second,
// rounded down.
func TestSystemAgreesWithTheUptimeOfTheKernel(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	if bytes.Contains(mounts, []byte(" /proc/uptime ")) {
		t.Skip("something (lxcfs?) is mounted over /proc/uptime and tells a container's age instead")
	}
	system := clock.System()
	before := system.Elapsed()
	text, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	after := system.Elapsed()

	first, _, _ := strings.Cut(string(text), " ")
	seconds, hundredths, ok := strings.Cut(first, ".")
	require.True(t, ok, "%q", text)
	s, err := strconv.ParseInt(seconds, 10, 64)
	require.NoError(t, err)
	h, err := strconv.ParseInt(hundredths, 10, 64)
	require.NoError(t, err)
	uptime := time.Duration(s)*time.Second + time.Duration(h)*10*time.Millisecond

	assert.Greater(t, uptime, before-10*time.Millisecond)
	assert.LessOrEqual(t, uptime, after)
}

// This is why a test in virtual time needs another clock.
func TestSystemIgnoresTheVirtualTimeOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := clock.System()
		before := system.Elapsed()
		time.Sleep(24 * time.Hour)
		assert.Less(t, system.Elapsed()-before, time.Hour)
	})
}
