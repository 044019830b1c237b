//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

// eventually bounds what takes no time on a machine that has nothing else to
// do.
const eventually = 30 * time.Second

// process is a run of the command in a process of its own, which is what
// tests of signals, process groups and exit statuses need.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of standard output; closed when nobody has that any more
	stderr buffer
	ended  chan struct{} // closed when the command has ended
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// commandLine returns the command, ready to be started, on the nodes of a
// cluster.
func commandLine(t *testing.T, cluster *redlocktest.Cluster, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", slowMachine)
	if cluster != nil {
		cmd.Env = append(cmd.Env, "REDLOCK_NODES="+strings.Join(cluster.Addrs(), ","))
	}
	return cmd
}

func start(t *testing.T, cluster *redlocktest.Cluster, args ...string) *process {
	t.Helper()
	return startCommand(t, commandLine(t, cluster, args...))
}

// startCommand starts a command. The test ends it, if it has not ended.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	return startCommandTo(t, cmd, nil)
}

// startCommandTo starts a command with a standard error of its own; nil for
// one that is kept.
func startCommandTo(t *testing.T, cmd *exec.Cmd, stderr *os.File) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, lines: make(chan string, 1000), ended: make(chan struct{})}
	var err error
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, &p.stderr
	if stderr != nil {
		cmd.Stderr = stderr
		defer stderr.Close()
	}
	cmd.WaitDelay = time.Second // for its standard error, which others may have, too
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = stdout.Close()
	}()
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // the state says more
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = p.stdin.Close()
		p.rest()
	})
	return p
}

// line returns the next line that the command prints.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(p.t, ok, "it ended: %s", p.stderr.String())
		return line
	case <-time.After(eventually):
		require.Fail(p.t, "no line", p.stderr.String())
		return ""
	}
}

// rest waits until all that the command has started is gone, too, and returns
// what they have printed since.
func (p *process) rest() []string {
	p.t.Helper()
	p.status()
	patience := time.After(eventually)
	var all []string
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return all
			}
			all = append(all, line)
		case <-patience:
			require.Fail(p.t, "somebody is left", "%v", p.cmd.Args)
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// status waits for the end of the command and returns the exit status; -1 if a
// signal has ended it.
func (p *process) status() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(eventually):
		_ = p.cmd.Process.Kill()
		require.Fail(p.t, "it does not end", "%v: %s", p.cmd.Args, p.stderr.String())
		return -1
	}
}

// output runs the command to its end.
func output(t *testing.T, cluster *redlocktest.Cluster, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	p := start(t, cluster, args...)
	require.NoError(t, p.stdin.Close())
	status = p.status()
	return status, strings.Join(p.rest(), "\n"), p.stderr.String()
}
