package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// slowMachine is a variable that keeps a busy machine from looking like nodes
// that hang.
const slowMachine = "REDLOCK_NODE_TIMEOUT=20s"

// clusterWith starts three nodes, and returns an environment that names them.
func clusterWith(t *testing.T) (*redlocktest.Cluster, []string) {
	t.Helper()
	cluster := redlocktest.Start(t, 3)
	return cluster, []string{"REDLOCK_NODES=" + strings.Join(cluster.Addrs(), ","), slowMachine}
}

// hold acquires a lock, which the test releases.
func hold(t *testing.T, cluster *redlocktest.Cluster, name, owner string) *redlock.Lock {
	t.Helper()
	locker, err := redlock.New(cluster.Addrs(), redlock.WithOwner(owner), redlock.WithTTL(time.Minute), redlock.WithFencing(true),
		redlock.WithNodeTimeout(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locker.Close()) })
	lock, err := locker.Acquire(t.Context(), name)
	require.NoError(t, err)
	return lock
}

// random is a token of this library's.
const random = "AAAAAAAAAAAAAAAAAAAAAA."

func TestInspectTellsWhoHoldsALockAndItsStatusWhetherAnybodyDoes(t *testing.T) {
	cluster, env := clusterWith(t)
	lock := hold(t, cluster, "job", "db1:17")

	status, out, errs := program(t.Context(), env, "inspect", "job")
	assert.Equal(t, exitOK, status)
	assert.Empty(t, errs)
	assert.Regexp(t, `^job: held by db1:17 on 3 of 3 nodes, for (59|1m)\S* if it is not renewed\nlast fencing token: \d+\n  127.0.0.1:\d+  (59|1m)\S* +db1:17\n`, out)
	assert.NotContains(t, out, lock.Token())

	status, out, _ = program(t.Context(), env, "inspect", "--json", "job")
	assert.Equal(t, exitOK, status)
	assert.NotContains(t, out, lock.Token())
	golden(t, "status.json", out, "held")

	status, out, _ = program(t.Context(), env, "inspect", "another")
	assert.Equal(t, exitFailed, status)
	assert.Regexp(t, `^another: free\n`, out)

	cluster.Node(0).Set("contended", random+"a", time.Minute)
	cluster.Node(1).Set("contended", random+"b", time.Minute)
	cluster.Node(2).Set("contended", "of another library", time.Minute)
	status, out, _ = program(t.Context(), env, "inspect", "contended")
	assert.Equal(t, exitFailed, status)
	assert.Regexp(t, `^contended: split\n.* a \(holder 1\)\n.* b \(holder 2\)\n.* \(no label\) \(holder 3\)\n$`, out)

	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	status, out, _ = program(t.Context(), env, "inspect", "job")
	assert.Equal(t, exitNoQuorum, status)
	assert.Regexp(t, `^job: unknown: too few of 3 nodes answered, 2 are needed\n`, out)
	assert.Contains(t, out, "connection refused")
}

func TestWhatOthersHaveChosenDoesNotSteerTheTerminal(t *testing.T) {
	cluster, env := clusterWith(t)
	const name = "\x1b[2J a\nb"
	for i := range cluster.Len() {
		cluster.Node(i).Set(name, "\x1b[2J", time.Minute)
	}
	for _, args := range [][]string{{"inspect", name}, {"list"}, {"break", "--yes", name}} {
		_, out, _ := program(t.Context(), env, args...)
		assert.NotContains(t, out, "\x1b")
		assert.Contains(t, out, `"\x1b[2J a\nb"`)
	}
}

func TestWhatNodesAnswerDoesNotSteerTheTerminal(t *testing.T) {
	cluster, env := clusterWith(t)
	for i := range cluster.Len() {
		cluster.Node(i).SetError("ERR \x1b[2J\u202eoops")
	}
	for _, args := range [][]string{{"inspect", "job"}, {"list"}, {"check"}, {"bench"}, {"run", "--try", "job", "--", "true"}} {
		_, out, errs := program(t.Context(), env, args...)
		assert.NotContains(t, out+errs, "\x1b", args)
		assert.Contains(t, out+errs, `ERR \x1b[2J\u202eoops`, args)
	}
	failed := redlock.Notice{Kind: redlock.NoticeBlind, At: noon, Err: errors.New("\x1b[2J")}
	tb := &table{}
	tb.take(failed)
	assert.NotContains(t, drawn(tb)+noticeLine(failed, term.Painter{}), "\x1b")
}

func TestNamesThatAreNoTextCanBeToldApartAndGivenBack(t *testing.T) {
	cluster, env := clusterWith(t)
	names := []string{"job \xff", "job \xfe", "job \ufffd", "<job>\u2028\x00&"}
	for _, name := range names {
		hold(t, cluster, name, "o")
	}
	// The name of a lock, as programs are told to read it.
	read := func(line string) string {
		var told struct {
			Name  string
			Bytes []byte `json:"name_base64"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &told), line)
		if told.Bytes == nil {
			return told.Name
		}
		return string(told.Bytes)
	}
	var listed []string
	_, out, _ := program(t.Context(), env, "--json", "list")
	for line := range strings.Lines(out) {
		listed = append(listed, read(line))
	}
	assert.ElementsMatch(t, names, listed)
	for _, name := range listed {
		status, out, errs := program(t.Context(), env, "--json", "inspect", name)
		assert.Equal(t, exitOK, status, errs)
		assert.Equal(t, name, read(out))
	}
	for _, name := range names {
		told, err := json.Marshal(describeNotice(redlock.Notice{Name: name}))
		require.NoError(t, err)
		assert.Equal(t, name, read(string(told)))
	}

	_, out, _ = program(t.Context(), env, "list")
	for _, name := range names {
		assert.Contains(t, out, strconv.Quote(name)+"\n")
	}
}

func TestListShowsEveryLockOnceAndNamesTheNodesThatFail(t *testing.T) {
	cluster, env := clusterWith(t)
	for _, name := range []string{"a1", "a2", "b1"} {
		hold(t, cluster, name, "o")
	}
	cluster.Node(0).Set("left", random+"dead", time.Minute)
	status, out, errs := program(t.Context(), env, "list")
	assert.Equal(t, exitOK, status)
	assert.Empty(t, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5, out)
	assert.Regexp(t, `^STATE +NODES +TTL +OWNER +NAME$`, lines[0])
	assert.Regexp(t, `(?m)^held +3/3 +\S+ +o +a1$`, out)
	assert.Regexp(t, `(?m)^lost majority +1/3 +dead +left$`, out)

	cluster.Node(2).Stop()
	status, out, errs = program(t.Context(), env, "--json", "list", "a*")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, 2, strings.Count(out, "\n"))
	golden(t, "warning.json", errs)
	var warning struct{ Warning nodeReport }
	require.NoError(t, json.Unmarshal([]byte(errs), &warning))
	assert.Equal(t, cluster.Node(2).Addr(), warning.Warning.Node)

	cluster.Node(1).Stop()
	status, _, errs = program(t.Context(), env, "list")
	assert.Equal(t, exitNoQuorum, status)
	assert.Contains(t, errs, "no quorum of nodes")
}

func TestBreakTakesALockFromItsHolderAndFromNobodyElse(t *testing.T) {
	cluster, env := clusterWith(t)
	lock := hold(t, cluster, "job", "db1:17")
	other := hold(t, cluster, "other", "db2:17")

	status, out, errs := program(t.Context(), env, "break", "job")
	assert.Equal(t, exitUsage, status, "nobody can be asked")
	assert.Empty(t, out)
	assert.Contains(t, errs, "standard input is no terminal")
	require.NoError(t, lock.Renew(t.Context()))

	status, out, _ = program(t.Context(), env, "break", "--yes", "job")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, "job: broken; it was held by db1:17\n", out)
	assert.Empty(t, cluster.Holders("job"))
	require.ErrorIs(t, lock.Renew(t.Context()), redlock.ErrLost)
	require.NoError(t, other.Renew(t.Context()))

	status, out, _ = program(t.Context(), env, "break", "-y", "job")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, "job: nobody holds it\n", out)

	status, out, _ = program(t.Context(), env, "break", "-y", "--json", "other")
	assert.Equal(t, exitOK, status)
	golden(t, "break.json", out, "held")

	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	status, _, errs = program(t.Context(), env, "break", "-y", "job")
	assert.Equal(t, exitNoQuorum, status)
	assert.Contains(t, errs, "too few nodes answered to tell who holds job")
	_, _, errs = program(t.Context(), env, "break", "-y", "--json", "job")
	assert.Contains(t, errs, `"outcome":"no_quorum"`)
}

func TestCheckReportsFindingsAndFailsOnErrors(t *testing.T) {
	cluster, env := clusterWith(t)
	status, out, errs := program(t.Context(), env, "check")
	assert.Equal(t, exitOK, status, out)
	assert.Empty(t, errs)
	assert.Regexp(t, `(?m)^127.0.0.1:\d+\n(  .*\n)*  \d+ ok$`, out)
	assert.Regexp(t, `\n0 errors, \d+ warnings?, \d+ infos, \d+ ok\n$`, out)
	assert.NotRegexp(t, `(?m)^  ok `, out)

	_, out, _ = program(t.Context(), env, "check", "--all")
	assert.Regexp(t, `(?m)^  ok +reach `, out)

	cluster.Node(1).Stop()
	status, out, _ = program(t.Context(), env, "check")
	assert.Equal(t, exitFailed, status)
	assert.Regexp(t, `(?m)^  error   reach +.*connection refused\n +endangers .*\n +to mend it, `, out)

	status, out, _ = program(t.Context(), env, "check", "--json")
	assert.Equal(t, exitFailed, status)
	var report checkReport
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Equal(t, "error", report.Worst)
	golden(t, "check.json", out, "error", "ok", "reach")
}

func TestStrictCheckFailsOnWarnings(t *testing.T) {
	_, env := clusterWith(t) // of nodes that started a moment ago, which is one
	status, out, _ := program(t.Context(), env, "check")
	require.Equal(t, exitOK, status)
	require.NotContains(t, out, "0 warnings")
	status, _, _ = program(t.Context(), env, "check", "--strict")
	assert.Equal(t, exitFailed, status)
}

func TestWatchPrintsALineForWhatHappensAndEndsWell(t *testing.T) {
	for _, args := range [][]string{{"watch"}, {"watch", "--json", "j*"}} {
		cluster, env := clusterWith(t)
		lock := hold(t, cluster, "job", "db1:17")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out := &lines{want: map[string]func(){
			"found":    func() { go func() { _ = lock.Release(context.WithoutCancel(ctx)) }() },
			"released": cancel,
		}}
		var errs bytes.Buffer
		args = append([]string{"redlock"}, append(args, "--every", "100ms")...)
		status := run(ctx, args, strings.NewReader(""), out, &errs, env)
		assert.Equal(t, exitOK, status, errs.String())
		if len(args) > 4 {
			golden(t, "watch.json", out.all.String(), "found", "released")
		} else {
			assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  found          held ≥0s +ttl \S+ +db1:17 +job\n.*  released       held ≥\S+ +ttl 0s +db1:17 +job\n$`, out.all.String())
		}
	}
}

// lines does something when a word is first written.
type lines struct {
	all  strings.Builder
	want map[string]func()
}

func (l *lines) Write(p []byte) (int, error) {
	for word, do := range l.want {
		if strings.Contains(string(p), word) {
			delete(l.want, word)
			do()
		}
	}
	return l.all.Write(p)
}

func TestOperatingCommandsRefuseNonsense(t *testing.T) {
	for args, want := range map[string]string{
		"inspect":           "inspect: no name of a lock",
		"inspect a b":       `inspect: unexpected argument "b"`,
		"inspect -- a -b":   `inspect: unexpected argument "-b"`,
		"inspect redlock:":  "reserved",
		"list a b":          `list: unexpected argument "b"`,
		"watch a b":         `watch: unexpected argument "b"`,
		"watch --stuck -1s": "WithStuckAfter(-1s)",
		"watch --every 0s":  "WithLookEvery(0s)",
		"break -y":          "break: no name of a lock",
		"check a":           `check: unexpected argument "a"`,
		"check --ttl 1ms":   "WithTTL(1ms)",
	} {
		status, out, errs := program(t.Context(), []string{"REDLOCK_NODES=localhost:1"}, strings.Fields(args)...)
		assert.Equal(t, exitUsage, status, args)
		if !strings.HasPrefix(args, "list") {
			assert.Empty(t, out, args)
		}
		assert.Contains(t, errs, want, args)
	}
}
