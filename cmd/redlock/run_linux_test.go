package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

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

func TestCtrlZStopsTheWaitForALock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for i := range cluster.Len() {
		cluster.Node(i).Set("job", "another's", time.Hour)
	}
	screen, p := onTerminal(t, cluster, jobControl(time.Minute, "echo ran"))
	require.Eventually(t, func() bool { return cluster.Node(0).Commands() > 0 }, eventually, time.Millisecond)
	screen.send(ctrlZ)
	screen.await("stopped with 148", 1) // 128 + SIGTSTP
	for i := range cluster.Len() {
		cluster.Node(i).Delete("job")
	}
	screen.send("continue\n")
	screen.await("ended with 0", 1)
	assert.Contains(t, screen.shown.String(), "ran\r\n", "which was not stopped at its start")
	assert.Equal(t, 0, p.status())
}

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
