package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

// terminal is the other side of a pseudo terminal.
type terminal struct {
	t     *testing.T
	file  *os.File
	shown buffer
}

// onTerminal starts a shell command line in a session of its own on a new
// terminal, on which redlock is "$R".
func onTerminal(t *testing.T, cluster *redlocktest.Cluster, line string) (*terminal, *process) {
	t.Helper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	t.Cleanup(func() { _ = file.Close() })
	ioctl := func(request uintptr, value *int32) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(unsafe.Pointer(value)))
		require.Zero(t, errno)
	}
	unlocked, number := int32(0), int32(0)
	ioctl(syscall.TIOCSPTLCK, &unlocked)
	ioctl(syscall.TIOCGPTN, &number)
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer other.Close()

	cmd := commandLine(t, cluster)
	cmd.Env = append(cmd.Env, "R="+cmd.Path)
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "--norc", "-c", line}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = other, other, other
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p := &process{t: t, cmd: cmd, ended: make(chan struct{}), lines: make(chan string)}
	close(p.lines)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // the state says more
	}()
	screen := &terminal{t: t, file: file}
	go func() {
		var some [1024]byte
		for {
			n, err := file.Read(some[:])
			if err != nil {
				return
			}
			_, _ = screen.shown.Write(some[:n])
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		p.status()
	})
	return screen, p
}

func (s *terminal) send(text string) {
	s.t.Helper()
	_, err := s.file.WriteString(text)
	require.NoError(s.t, err)
}

// await waits until something is shown, so many times.
func (s *terminal) await(text string, times int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Count(s.shown.String(), text) >= times }, eventually, 10*time.Millisecond,
		"%d × %q in:\n%s", times, text, &printed{s})
}

// printed shows the terminal when the message is made.
type printed struct{ *terminal }

func (p *printed) String() string { return p.shown.String() }

func TestBreakAsksOnATerminal(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	lock := hold(t, cluster, "job", "db1:17")
	for _, test := range []struct {
		typed  string
		status int
	}{{"n\n", exitFailed}, {"\n", exitFailed}, {ctrlC, exitSignal + int(syscall.SIGINT)}, {"Yes\n", exitOK}} {
		require.NoError(t, lock.Err())
		screen, p := onTerminal(t, cluster, `"$R" break job`)
		screen.await("by db1:17 on 3 of 3 nodes", 1)
		screen.await("Break the lock? [y/N]", 1)
		assert.NotEmpty(t, cluster.Holders("job"))
		screen.send(test.typed)
		assert.Equal(t, test.status, p.status(), "%q", test.typed)
	}
	assert.Empty(t, cluster.Holders("job"))
}

func TestWatchShowsATableOnATerminalAndLeavesItAsItWas(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	hold(t, cluster, "job", "db1:17")
	screen, p := onTerminal(t, cluster, `"$R" watch --every 200ms`)
	screen.await("1 lock held", 1)
	hold(t, cluster, "another", "db2:17")
	screen.await("2 locks held", 1)
	screen.send(ctrlC)
	assert.Equal(t, exitOK, p.status())
	require.Eventually(t, func() bool { return strings.HasSuffix(screen.shown.String(), firstScreen) }, eventually, time.Millisecond)
}
