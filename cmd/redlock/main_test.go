package main

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/redlocktest"
)

// asCommand makes the test program run as the command.
const asCommand = "REDLOCK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		_ = os.Unsetenv(asCommand) // or what it runs would be the command, too
		main()
	}
	// Tests that are run by nohup, or in the background of a script, must not
	// hand on that signals are ignored: a signal that is caught is the default
	// again in what they start.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	goleak.VerifyTestMain(m)
}

// program runs it with the arguments. Runs must not be parallel: the
// flags for help are variables of the library.
func program(ctx context.Context, env []string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, append([]string{"redlock"}, args...), strings.NewReader(""), &out, &errs, env)
	return status, out.String(), errs.String()
}

// smallDemo has few contenders: these tests have to go well on a machine that is busy with
// others, under the race detector.
func smallDemo(args ...string) []string {
	return append([]string{"demo", "--lockers", "2", "--per-locker", "1"}, args...)
}

func TestDemoOnEmbeddedNodesNeverHoldsTheLockTwice(t *testing.T) {
	status, out, errs := program(t.Context(), nil, smallDemo("--duration", "3s")...)
	assert.Equal(t, exitOK, status, out)
	assert.Empty(t, errs)
	for _, want := range []string{
		"redlock demo: 5 embedded nodes, 2 contenders, one lock",
		"node 2 killed", "node 4 hangs", "node 4 goes on after", "node 2 is back after", "node 5 restarts",
		"   time  A1 B1   1  2  3  4  5\n",
		"\n  3.00s ", "contender   holds", "longest gap ", "hand-over ",
		"VERDICT: the lock was never held twice",
		" 0 overlaps", "holders met each other 0 times", "left behind: the lock's key on ",
	} {
		assert.Contains(t, out, want)
	}
	assert.NotContains(t, out, "\x1b", "colour, but no terminal")
}

func TestDemoOnNamedNodesLeavesNothingBehind(t *testing.T) {
	for name, give := range map[string]func(addrs string) (env, args []string){
		"in the environment": func(addrs string) (env, args []string) {
			return []string{"REDLOCK_NODES=" + addrs}, smallDemo("--duration", "2s")
		},
		"by a flag, which prevails": func(addrs string) (env, args []string) {
			return []string{"REDLOCK_NODES=localhost:1"}, append([]string{"--nodes", addrs}, smallDemo("--duration", "2s")...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := redlocktest.Start(t, 3)
			env, args := give(strings.Join(cluster.Addrs(), ", "))
			status, out, errs := program(t.Context(), env, args...)
			assert.Equal(t, exitOK, status, out)
			assert.Empty(t, errs)
			assert.Contains(t, out, "redlock demo: 3 real nodes")
			assert.Contains(t, out, "never more than 1 at once")
			assert.Contains(t, out, "VERDICT: the lock was never held twice")
			for i := range cluster.Len() {
				assert.Empty(t, cluster.Node(i).Keys())
			}
		})
	}
}

func TestInterruptedDemoStillHasAVerdict(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watched{glyphs: "▏▎▍▌▋▊▉█", seen: cancel}
	status := run(ctx, append([]string{"redlock"}, smallDemo("--duration", "1m")...), nil, out, out, nil)
	assert.Equal(t, exitOK, status, out.String())
	assert.Contains(t, out.String(), "Interrupted after ")
	assert.Contains(t, out.String(), "VERDICT: the lock was never held twice")
}

// watched is a buffer that says when one of some characters has been written.
type watched struct {
	bytes.Buffer
	glyphs string
	seen   func()
}

func (w *watched) Write(p []byte) (int, error) {
	if bytes.ContainsAny(p, w.glyphs) {
		w.seen()
	}
	return w.Buffer.Write(p)
}

func TestInterruptedBeforeAnythingHappenedProvesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, out, _ := program(ctx, nil, "demo")
	assert.Equal(t, exitFailed, status, out)
	assert.Contains(t, out, "VERDICT: none")
}

func TestDemoRefusesNodesInTheWordsOfNew(t *testing.T) {
	for nodes, want := range map[string]string{
		"a:1,b:2":     "redlock: 2 nodes: an even number",
		"a:1,b:2,a:1": "a:1",
		"a:1":         "a single node",
		"a:1,ftp://b": "node 2",
	} {
		status, out, errs := program(t.Context(), nil, "demo", "--nodes", nodes)
		assert.NotEqual(t, exitOK, status)
		assert.Empty(t, out)
		assert.Contains(t, errs, want)
	}
}

func TestDemoWantsAllNodesToBeUp(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	cluster.Node(1).Stop()
	status, out, errs := program(t.Context(), nil, "demo", "--nodes", strings.Join(cluster.Addrs(), ","))
	assert.Equal(t, exitFailed, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "all nodes must be up")
	assert.Contains(t, errs, cluster.Node(1).Addr())
}

func TestCommandLineErrorsAreReported(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"nonsense", `redlock: unknown command "nonsense"`},
		{"--nonsense", "redlock: flag provided but not defined: -nonsense"},
		{"demo --nonsense", "redlock: flag provided but not defined: -nonsense"},
		{"demo nonsense", `redlock: demo: unexpected argument "nonsense"`},
		{"demo --duration never", "invalid value"},
		{"demo --duration 1s", "redlock: demo: duration of 1s: want 2s to "},
		{"demo --lockers 0", "redlock: demo: 0 Lockers"},
	} {
		status, out, errs := program(t.Context(), nil, strings.Fields(test.args)...)
		assert.Equal(t, exitUsage, status, test.args)
		assert.Empty(t, out, test.args)
		assert.Contains(t, errs, test.want, test.args)
		assert.Contains(t, errs, "See redlock --help.", test.args)
	}
}

func TestHelpIsThereWithAndWithoutAsking(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"-h"}} {
		status, out, errs := program(t.Context(), nil, args...)
		assert.Equal(t, exitOK, status)
		assert.Empty(t, errs)
		assert.Regexp(t, `\n   run +run a command under a lock\n`, out)
		assert.Contains(t, out, "[$REDLOCK_NODES]")
	}
	status, out, _ := program(t.Context(), nil, "demo", "--help")
	assert.Equal(t, exitOK, status)
	assert.Contains(t, out, "--duration")
}

func TestEveryFlagIsInTheManual(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "command.md"))
	require.NoError(t, err)
	root := newRoot(invocation{})
	var known, missing []string
	for _, c := range append(root.Commands, root) {
		for _, f := range c.Flags {
			known = append(known, c.Name+" --"+f.Names()[0])
			if !strings.Contains(string(manual), "`--"+f.Names()[0]) {
				missing = append(missing, known[len(known)-1])
			}
		}
	}
	assert.Greater(t, len(known), 20)
	assert.Empty(t, missing)
}

func TestVersionIsWhatWasBuilt(t *testing.T) {
	status, out, _ := program(t.Context(), nil, "--version")
	assert.Equal(t, exitOK, status)
	assert.Regexp(t, `^redlock \S.* go1\.\d+`, out)

	info := &debug.BuildInfo{GoVersion: "go1.26"}
	assert.Equal(t, "(devel) go1.26", describe(info))
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	assert.Equal(t, "(devel) 0123456789ab (modified) go1.26", describe(info))
	info.Main.Version = "v1.2.3-0.20260101000000-0123456789ab"
	assert.Equal(t, info.Main.Version+" go1.26", describe(info))
}

func TestLastValueOfAVariableCounts(t *testing.T) {
	env := environ{"A=1", "B=2", "A=3", "C"}
	value, ok := env.lookup("A")
	require.True(t, ok)
	assert.Equal(t, "3", value)
	_, ok = env.lookup("C")
	assert.False(t, ok)
}

func TestCompletionNamesCommandsAndFlags(t *testing.T) {
	for typed, want := range map[string]string{
		"run --wa":         "--wait:wait no longer than this",
		"bench --conc":     "--concurrency:how many locks",
		"run --node-t":     "--node-timeout:how long one node may take to answer",
		"completion":       "bash:Output bash completion script",
		"run job -- --wai": "", // the command's own
	} {
		status, out, errs := program(t.Context(), nil, append(strings.Fields(typed), completionRequest)...)
		assert.Equal(t, exitOK, status, typed)
		assert.Empty(t, errs, typed)
		if want == "" {
			assert.Empty(t, out, typed)
		} else {
			assert.Contains(t, out, want, typed)
		}
	}
}

func TestCompletionRunsNothing(t *testing.T) {
	cluster := redlocktest.Start(t, 1)
	marker := filepath.Join(t.TempDir(), "marker")
	env := []string{"REDLOCK_NODES=" + cluster.Addrs()[0]}
	for _, args := range [][]string{{"run", "job", "--", "touch", marker}, {"run", "job"}, {"bench"}} {
		status, _, _ := program(t.Context(), env, append(args, completionRequest)...)
		assert.Equal(t, exitOK, status)
	}
	assert.NoFileExists(t, marker)
	assert.Zero(t, cluster.Node(0).Commands())
}

func TestEveryShellHasACompletionScript(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		status, out, errs := program(t.Context(), nil, "completion", shell)
		assert.Equal(t, exitOK, status)
		assert.Contains(t, out, completionRequest, shell)
		assert.Empty(t, errs)
	}
}
