//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

// requireFree waits until nobody holds the lock on "job".
func requireFree(t *testing.T, cluster *redlocktest.Cluster) {
	t.Helper()
	require.Eventually(t, func() bool { return len(cluster.Holders("job")) == 0 }, eventually, 10*time.Millisecond, "still held")
}

// token returns the token that a quorum of nodes holds the key under.
func token(t *testing.T, cluster *redlocktest.Cluster, key string) string {
	t.Helper()
	for value, nodes := range cluster.Holders(key) {
		if nodes > cluster.Len()/2 {
			return value
		}
	}
	require.Fail(t, "nobody holds it", key)
	return ""
}

func TestRunPassesInputOutputAndStatusThroughWhileItHoldsTheLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	p := start(t, cluster, "run", "job", "--", "sh", "-c", `echo ready; cat; echo oops >&2; exit 7`)
	assert.Equal(t, "ready", p.line())
	token(t, cluster, "job")
	_, err := io.WriteString(p.stdin, "through\n")
	require.NoError(t, err)
	assert.Equal(t, "through", p.line())
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, 7, p.status())
	assert.Equal(t, "oops\n", p.stderr.String())
	requireFree(t, cluster)
}

func TestRunTellsTheCommandWhatItHolds(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	show := `printf '%s|%s|%s\n' "$REDLOCK_NAME" "$REDLOCK_TOKEN" "${REDLOCK_FENCING_TOKEN-none}"; read line`
	numbers := make([]uint64, 2)
	for i := range numbers {
		p := start(t, cluster, "run", "--fence", "--owner", "the test", "job", "--", "sh", "-c", show)
		said := strings.Split(p.line(), "|")
		assert.Equal(t, "job", said[0])
		assert.Equal(t, token(t, cluster, "job"), said[1])
		assert.True(t, strings.HasSuffix(said[1], ".the test"), said[1])
		_, err := fmt.Sscan(said[2], &numbers[i])
		require.NoError(t, err)
		require.NoError(t, p.stdin.Close())
		assert.Equal(t, 1, p.status())
	}
	assert.Greater(t, numbers[1], numbers[0])

	cmd := commandLine(t, cluster, "run", "b", "a", "b", "--", "sh", "-c", show)
	cmd.Env = append(cmd.Env, "REDLOCK_FENCING_TOKEN=1", "REDLOCK_TOKEN=of another", "REDLOCK_NAME=another")
	p := startCommand(t, cmd)
	assert.Equal(t, "a", p.line())
	assert.Equal(t, "b|"+token(t, cluster, "b")+"|none", p.line(), "nothing is inherited")
	assert.Equal(t, token(t, cluster, "a"), token(t, cluster, "b"))
}

func TestRunRenewsTheLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	const ttl = 3 * time.Second
	p := start(t, cluster, "run", "--ttl", ttl.String(), "job", "--", "sh", "-c", `echo ready; read line; echo done`)
	p.line()
	first := token(t, cluster, "job")
	for range 10 {
		time.Sleep(ttl / 5)
		assert.Equal(t, first, token(t, cluster, "job"))
	}
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, 0, p.status(), p.stderr.String())
	assert.Equal(t, []string{"done"}, p.rest())
	requireFree(t, cluster)
}

func TestRunHasStatusesOfItsOwn(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	holder := start(t, cluster, "run", "taken", "--", "sh", "-c", "echo ready; read line")
	holder.line()
	for _, test := range []struct {
		args   string
		status int
		want   string // in standard error; nothing there if empty
	}{
		{"run job -- true", 0, ""},
		{"run job -- false", 1, ""},
		{"run job -- sh -c exit\t255", 255, ""},
		{"run job -- sh -c kill\t-KILL\t$$", 128 + 9, ""},
		{"run job -- sh -c kill\t-TERM\t$$", 128 + 15, ""},
		{"run job -- no-such-command", 127, `redlock: run: exec: "no-such-command": executable file not found`},
		{"run job -- ./no-such-command", 127, "no such file"},
		{"run job -- /", 126, "redlock: run: "},
		{"run --try taken -- ./no-such-command", 127, "no such file"}, // which need not wait
		{"run --try taken -- true", 193, `redlock: acquire "taken": others hold the lock`},
		{"run --wait 2s taken -- true", 193, `redlock: acquire "taken": context deadline exceeded`},
		{"run --wait 2s job taken -- true", 193, `"taken"`},
		{"run --try -E 75 taken -- true", 75, "others hold the lock"},
		{"run --try --conflict-exit-code 0 taken -- true", 0, ""},
		{"run -- true", 196, "run: no name to lock"},
		{"run job true", 196, `run: no command: put "--" before it`},
		{"run job --", 196, `run: no command after "--"`},
		{"run --nonsense job -- true", 196, "flag provided but not defined: -nonsense"},
		{"run --ttl never job -- true", 196, "invalid value"},
		{"run --ttl -5s job -- true", 196, "run: --ttl -5s"},
		{"run --ttl 1ms job -- true", 196, "WithTTL(1ms)"},
		{"run --ttl 10s --grace 6s job -- true", 196, "--grace 6s: want 0 to half of --ttl 10s"},
		{"run --max-hold 1s --grace 2s job -- true", 196, "--grace 2s: want less than --max-hold 1s"},
		{"run --min-hold 2s --max-hold 1s job -- true", 196, "WithMinHold(2s)"},
		{"run --try --wait 1s job -- true", 196, "--try does not --wait"},
		{"run --wait 0s job -- true", 196, "--wait 0s: want more than 0"},
		{"run -E 256 job -- true", 196, "--conflict-exit-code 256: want 0 to 255"},
		{"run redlock:x -- true", 196, "reserved"},
		{"run --nodes localhost:1,localhost:2 job -- true", 196, "2 nodes: an even number"},
		{"run --nodes localhost:1 --outage-tolerance 0s job -- true", 194, "no quorum of nodes"},
		{"run --nodes localhost:1 --try job -- true", 194, "no quorum of nodes"},
		{"--nonsense run job -- true", 2, "flag provided but not defined: -nonsense"},
	} {
		args := strings.Fields(strings.ReplaceAll(test.args, "\t", "\x00"))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		status, stdout, stderr := output(t, cluster, args...)
		assert.Equal(t, test.status, status, "%s: %s", test.args, stderr)
		assert.Empty(t, stdout, test.args)
		if test.want == "" {
			assert.Empty(t, stderr, test.args)
		} else {
			assert.Contains(t, stderr, test.want, test.args)
		}
		requireFree(t, cluster)
	}
}

func TestNodesThatHangAreNotTakenForOthersThatHoldTheLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for i := range cluster.Len() {
		cluster.Node(i).Hang()
	}
	status, _, stderr := output(t, cluster, "--json", "--node-timeout", "1s", "run", "--wait", "200ms", "job", "--", "true")
	assert.Equal(t, 194, status, stderr)
	assert.Contains(t, stderr, `"outcome":"no_quorum"`)
}

func TestRunWithoutNodesSaysHowToNameThem(t *testing.T) {
	t.Parallel()
	cmd := commandLine(t, nil, "run", "job", "--", "true")
	cmd.Env = append(cmd.Env, "REDLOCK_NODES=")
	p := startCommand(t, cmd)
	assert.Equal(t, 196, p.status())
	assert.Contains(t, p.stderr.String(), "no nodes: give --nodes or set REDLOCK_NODES")
}

func TestRunWaitsForTheLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	first := start(t, cluster, "run", "job", "--", "sh", "-c", "echo first; read line")
	first.line()
	second := start(t, cluster, "run", "--wait", "1m", "job", "--", "echo", "second")
	select {
	case line := <-second.lines:
		require.Fail(t, "two at once", line)
	case <-time.After(time.Second):
	}
	require.NoError(t, first.stdin.Close())
	assert.Equal(t, "second", second.line())
	assert.Equal(t, 0, second.status())
}

// A shell that starts another, neither of which ends at SIGTERM. (On its
// standard error it would report the end of every sleep.)
const stubborn = `exec 2>/dev/null
trap 'echo told' TERM
sh -c 'trap "echo told, too" TERM; echo grandchild; while :; do sleep 0.1; done' &
echo child
while :; do sleep 0.1; done`

func TestALostLockStopsTheCommandAndAllThatItHasStarted(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	p := start(t, cluster, "run", "--ttl", "3s", "--grace", "1s", "job", "--", "sh", "-c", stubborn)
	assert.ElementsMatch(t, []string{"child", "grandchild"}, []string{p.line(), p.line()})
	for i := range cluster.Len() {
		cluster.Node(i).Delete("job")
	}
	assert.ElementsMatch(t, []string{"told", "told, too"}, []string{p.line(), p.line()})
	assert.Equal(t, 195, p.status())
	assert.Empty(t, p.rest())
	assert.Regexp(t, `^redlock: lock "job" lost: .*; the command was stopped\n$`, p.stderr.String())
}

func TestALostLockStopsTheGrandchildEvenIfTheCommandEndsAtOnce(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	p := start(t, cluster, "run", "--ttl", "3s", "--grace", "1s", "job", "--", "sh", "-c",
		`sh -c 'trap "" TERM; echo ready; while :; do sleep 0.1; done' & wait`)
	p.line()
	for i := range cluster.Len() {
		cluster.Node(i).Delete("job")
	}
	assert.Equal(t, 195, p.status())
	assert.Empty(t, p.rest(), "and nobody is left")
}

func TestACommandThatWasStoppedByItsLockIsContinuedToEnd(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	p := start(t, cluster, "run", "--ttl", "6s", "--grace", "3s", "job", "--", "sh", "-c",
		`trap 'echo told; exit' TERM; echo $$; while :; do sleep 0.1; done`)
	var pid int
	_, err := fmt.Sscan(p.line(), &pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-pid, syscall.SIGSTOP))
	for i := range cluster.Len() {
		cluster.Node(i).Delete("job")
	}
	assert.Equal(t, "told", p.line(), "it was not killed without a word")
	assert.Equal(t, 195, p.status())
}

func TestALockThatCannotBeRenewedStopsTheCommandBeforeItEnds(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	const ttl = 10 * time.Second
	p := start(t, cluster, "run", "--ttl", ttl.String(), "--grace", "5s", "job", "--", "sh", "-c",
		"exec 2>/dev/null; trap 'echo told; exit' TERM; echo ready; while :; do sleep 0.1; done")
	p.line()
	acquired := time.Now()
	for i := range cluster.Len() {
		cluster.Node(i).Stop()
	}
	assert.Equal(t, "told", p.line())
	assert.Less(t, time.Since(acquired), ttl-time.Second)
	assert.Equal(t, 195, p.status())
	assert.Regexp(t, `^redlock: the lock is running out: renew "job": no quorum of nodes: .*connection refused; the command was stopped\n$`,
		oneOutageText(p.stderr.String()))
}

// oneOutageText evens out how the nodes' absence is seen.
func oneOutageText(text string) string {
	return strings.ReplaceAll(text, "connection reset by peer", "connection refused")
}

func TestHoldsHaveBounds(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	t.Run("from above", func(t *testing.T) {
		status, _, stderr := output(t, cluster, "run", "--max-hold", "1s", "job", "--", "sleep", "1000")
		assert.Equal(t, 195, status)
		assert.Contains(t, stderr, "held for the maximum")
		requireFree(t, cluster)
	})
	t.Run("from below", func(t *testing.T) {
		status, _, _ := output(t, cluster, "run", "--min-hold", "1m", "job", "--", "true")
		assert.Equal(t, 0, status)
		token(t, cluster, "job")
	})
}

func TestSignalsAreTheCommandsToAnswer(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		p := start(t, cluster, "run", "job", "--", "sh", "-c", fmt.Sprintf(
			`exec 2>/dev/null; n=0; trap 'n=$((n+1)); echo told $n' %d; echo ready; while [ $n -lt 2 ]; do sleep 0.1; done; exit 9`, s))
		p.line()
		for i := 1; i <= 2; i++ { // the second is no different
			p.signal(s)
			assert.Equal(t, fmt.Sprintf("told %d", i), p.line(), "%v", s)
		}
		assert.Equal(t, 9, p.status(), "%v", s)
		assert.Empty(t, p.rest(), "%v: told more than once", s)
		assert.Empty(t, p.stderr.String(), "%v", s)
		requireFree(t, cluster)
	}
}

func TestTheLockIsHeldUntilASignalHasEndedTheCommand(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	p := start(t, cluster, "run", "job", "--", "sh", "-c", `trap 'echo ending; read line; exit 0' TERM; echo ready; while :; do sleep 0.1; done`)
	p.line()
	p.signal(syscall.SIGTERM)
	assert.Equal(t, "ending", p.line())
	token(t, cluster, "job")
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, 0, p.status())
	requireFree(t, cluster)
}

func TestASignalEndsTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for i := range cluster.Len() {
		cluster.Node(i).Set("job", "another's", time.Hour)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		p := start(t, cluster, "run", "job", "--", "echo", "ran")
		before := cluster.Node(0).Commands()
		require.Eventually(t, func() bool { return cluster.Node(0).Commands() > before }, eventually, time.Millisecond)
		p.signal(s)
		assert.Equal(t, 128+int(s), p.status())
		assert.Empty(t, p.rest())
		assert.Contains(t, p.stderr.String(), s.String())
	}
	assert.Equal(t, map[string]int{"another's": cluster.Len()}, cluster.Holders("job"))
}

func TestSignalsThatWereIgnoredStayIgnored(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	cmd := commandLine(t, cluster)
	shell := commandLine(t, cluster)
	shell.Path, shell.Args = "/bin/sh", []string{"sh", "-c", `trap '' HUP INT; exec "$0" run job -- sh -c 'echo ready; read line; echo alive'`, cmd.Path}
	p := startCommand(t, shell)
	p.line()
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGINT)
	_, err := io.WriteString(p.stdin, "go on\n")
	require.NoError(t, err)
	assert.Equal(t, "alive", p.line())
	assert.Equal(t, 0, p.status())
}

func TestRunDescribesItsFailuresInJSON(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for i := range cluster.Len() {
		cluster.Node(i).Set("taken", "another's", time.Hour)
	}
	cluster.Node(2).SetError("READONLY You can't write against a read only replica.")
	status, stdout, stderr := output(t, cluster, "--json", "run", "--try", "taken", "--", "true")
	assert.Equal(t, 193, status)
	assert.Empty(t, stdout)
	golden(t, "failure.json", stderr, "taken")
	var got failure
	require.NoError(t, json.Unmarshal([]byte(stderr), &got), stderr)
	assert.Equal(t, 193, got.Error.Status)
	assert.Contains(t, got.Error.Message, "others hold the lock")
	require.Len(t, got.Error.Nodes, 3)
	for i, n := range got.Error.Nodes {
		assert.Equal(t, cluster.Node(i).Addr(), n.Node)
	}

	// The word does not depend on the status that was asked for.
	for _, conflict := range []string{"2", "126", "127", "196"} {
		_, _, stderr := output(t, cluster, "--json", "run", "--try", "-E", conflict, "taken", "--", "true")
		assert.Contains(t, stderr, `"outcome":"taken"`)
	}
	_, _, stderr = output(t, cluster, "--json", "run", "--nonsense", "taken", "--", "true")
	assert.Contains(t, stderr, `"outcome":"usage"`)
}

func TestVerboseRunLogsAndKeepsTheTokenToItself(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	for _, asJSON := range []string{"--json=false", "--json"} {
		status, stdout, stderr := output(t, cluster, "-v", asJSON, "run", "job", "--", "sh", "-c", `echo "$REDLOCK_TOKEN"`)
		assert.Equal(t, 0, status)
		assert.NotEmpty(t, stdout)
		assert.Contains(t, stderr, "acquired")
		assert.Contains(t, stderr, "released")
		assert.NotContains(t, stderr, stdout)
		for line := range strings.Lines(stderr) {
			assert.Equal(t, asJSON == "--json", json.Valid([]byte(line)), line)
		}
	}
}

func TestAnErrorStreamThatNobodyReadsDoesNotEndTheLock(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 3)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd := commandLine(t, cluster, "-v", "run", "job", "--", "sh", "-c", "trap 'exit 5' USR1; echo ready; while :; do sleep 0.1; done")
	p := startCommandTo(t, cmd, writer)
	p.line()
	require.NoError(t, reader.Close())
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, 5, p.status(), "though the release was logged")
	requireFree(t, cluster)
}
