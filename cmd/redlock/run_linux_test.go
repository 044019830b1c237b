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

func TestTheCommandDoesNotOutliveTheOneThatHoldsItsLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	// Without redlock nobody would end the group, so there is nobody else in it.
	p := start(t, cluster, "run", "job", "--", "sh", "-c", `echo ready; trap '' TERM HUP; exec sleep 1000`)
	p.line()
	p.signal(syscall.SIGKILL)
	assert.Empty(t, p.rest())
}

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

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCtrlCReachesTheCommandOnceWhoeverHasTheTerminal(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for name, first := range map[string]string{
		"in the background":                       "",
		"in the foreground, as it has read there": "read line; echo got $line;",
	} {
		t.Run(name, func(t *testing.T) {
			screen, p := onTerminal(t, cluster, `"$R" run job -- sh -c '`+first+`trap "echo told" INT; echo ready; while :; do sleep 0.1; done'`)
			if first != "" {
				screen.send("something\n")
				screen.await("got something", 1)
			}
			screen.await("ready", 1)
			for i := 1; i <= 3; i++ {
				screen.send(ctrlC)
				screen.await("told", i)
			}
			time.Sleep(300 * time.Millisecond) // for more of them, which would be wrong
			assert.Equal(t, 3, strings.Count(screen.shown.String(), "told"), screen.shown.String())
			require.NoError(t, syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM))
			assert.Equal(t, 128+15, p.status())
			requireFree(t, cluster)
		})
	}
}

// jobControl is a shell that says when the command was stopped, and continues
// it when a line is typed.
func jobControl(ttl time.Duration, command string) string {
	return `set -m
"$R" run --ttl ` + ttl.String() + ` --grace 1s job -- sh -c '` + command + `'
echo "stopped with $?"; read line; fg >/dev/null; echo "ended with $?"`
}

func TestCtrlZStopsTheCommandAndGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for name, first := range map[string]string{
		"in the background":                       "",
		"in the foreground, as it has read there": "read line; echo got $line;",
	} {
		t.Run(name, func(t *testing.T) {
			screen, p := onTerminal(t, cluster, jobControl(time.Minute, first+`echo ready; read line; echo and $line; exit 4`))
			if first != "" {
				screen.send("something\n")
				screen.await("got something", 1)
			}
			screen.await("ready", 1)
			screen.send(ctrlZ)
			screen.await("stopped with 149", 1) // 128 + SIGTTIN
			screen.send("continue\n")
			screen.send("more\n")
			screen.await("and more", 1)
			screen.await("ended with 4", 1)
			assert.Equal(t, 0, p.status())
			requireFree(t, cluster)
		})
	}
}

func TestACommandThatWasStoppedForTooLongIsNotContinued(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	const ttl = 3 * time.Second
	screen, p := onTerminal(t, cluster, jobControl(ttl, `echo ready; read line; echo "went" "on"`))
	screen.await("ready", 1)
	screen.send(ctrlZ)
	screen.await("stopped with 149", 1)
	requireFree(t, cluster)
	screen.send("continue\nmore\n")
	screen.await("ended with 195", 1)
	assert.Equal(t, 0, p.status())
	assert.NotContains(t, screen.shown.String(), "went on")
	assert.Contains(t, screen.shown.String(), "lost: expired")
}
