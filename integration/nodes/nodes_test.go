package nodes_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
)

type starter = func(tb testing.TB, n int, opts ...nodes.Option) *nodes.Cluster

// kinds are the kinds of node to test; when one is demanded, that one and the embedded ones, which cost nothing.
func kinds() []nodes.Kind {
	demanded := nodes.Kind(os.Getenv(nodes.BackendVariable))
	if demanded == "" {
		return []nodes.Kind{nodes.Container, nodes.Process, nodes.Embedded}
	}
	return slices.Compact([]nodes.Kind{demanded, nodes.Embedded})
}

// having fails the test when the kind is demanded and cannot be had, and skips it when it is only missing.
func having(t *testing.T, kind nodes.Kind) starter {
	t.Helper()
	start, err := nodes.Detect(t.Context(), kind)
	if err != nil {
		if os.Getenv(nodes.BackendVariable) == string(kind) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return start
}

// dial is a client like those of the tests to come: nothing of the harness is in its way.
func dial(t *testing.T, url string, opts ...redis.DialOption) redis.Conn {
	t.Helper()
	conn, err := tryDial(url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func tryDial(url string, opts ...redis.DialOption) (redis.Conn, error) {
	opts = append(opts, redis.DialConnectTimeout(2*time.Second), redis.DialReadTimeout(2*time.Second))
	return redis.DialURL(url, opts...)
}

func TestNodesAnswerAndKnowNothingOfEachOther(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 3)
			require.Len(t, c.Addrs(), 3)
			for i, url := range c.URLs() {
				_, err := dial(t, url).Do("SET", fmt.Sprint("key", i), "value")
				require.NoError(t, err)
			}
			for i := range c.Len() {
				assert.Equal(t, []string{fmt.Sprint("key", i)}, c.Node(i).Keys())
			}
		})
	}
}

func TestStopEndsConnectionsAndStartComesBackEmptyAtTheSameAddress(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1)
			c.Require(nodes.Stopping)
			n := c.Node(0)
			addr := n.Addr()
			conn := dial(t, n.URL())
			_, err := conn.Do("SET", "k", "v")
			require.NoError(t, err)

			n.Stop()
			_, err = conn.Do("PING")
			require.Error(t, err)
			_, err = n.Do("PING")
			require.Error(t, err)

			n.Start()
			assert.Equal(t, addr, n.Addr())
			_, err = dial(t, n.URL()).Do("PING")
			require.NoError(t, err)
			assert.Empty(t, n.Keys())
		})
	}
}

func TestKillAndRestart(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1)
			c.Require(nodes.Killing)
			n := c.Node(0)
			n.Kill()
			_, err := tryDial(n.URL())
			require.Error(t, err)
			n.Kill() // a second time is no error
			n.Start()
			assert.Empty(t, n.Keys())
		})
	}
}

func TestWithAOFStopAndKillForgetNothingButRestartEmptyForgetsAll(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1, nodes.WithAOF())
			n := c.Node(0)
			_, err := n.Do("SET", "k", "v")
			require.NoError(t, err)

			n.Stop()
			n.Start()
			assert.Equal(t, []string{"k"}, n.Keys())
			n.Kill()
			n.Start()
			assert.Equal(t, []string{"k"}, n.Keys())

			n.RestartEmpty()
			assert.Empty(t, n.Keys())
		})
	}
}

func TestRestartEmptyForgetsAndKeepsTheAddress(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1)
			c.Require(nodes.Forgetting)
			n := c.Node(0)
			addr := n.Addr()
			_, err := n.Do("SET", "k", "v")
			require.NoError(t, err)
			n.RestartEmpty()
			assert.Equal(t, addr, n.Addr())
			assert.Empty(t, n.Keys())
		})
	}
}

func TestAPausedNodeHangsAndForgetsNothing(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1)
			c.Require(nodes.Pausing)
			n := c.Node(0)
			_, err := n.Do("SET", "k", "v")
			require.NoError(t, err)

			n.Pause()
			conn := dial(t, n.URL()) // the kernel accepts for a paused node
			_, err = redis.DoWithTimeout(conn, 200*time.Millisecond, "PING")
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			assert.True(t, timeout.Timeout(), "a paused node must hang, and not refuse: %v", err)

			n.Resume()
			assert.Equal(t, []string{"k"}, n.Keys())
		})
	}
}

func TestAPausedNodeCanBeStoppedAndKilled(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1)
			c.Require(nodes.Pausing)
			n := c.Node(0)
			n.Pause()
			n.Stop()
			n.Start()
			n.Pause()
			n.Kill()
			n.Start()
			n.Pause()
			n.RestartEmpty()
			n.Pause() // and the cleanup must cope with it as well
		})
	}
}

func TestADisconnectedNodeIsOutOfReachAndKeepsItsKeys(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1)
			c.Require(nodes.Disconnecting)
			n := c.Node(0)
			_, err := n.Do("SET", "k", "v")
			require.NoError(t, err)
			n.Disconnect()
			conn, err := tryDial(n.URL())
			if err == nil {
				_, err = conn.Do("PING")
				_ = conn.Close()
			}
			require.Error(t, err)
			t.Logf("a client sees: %v", err)
			n.Reconnect()
			assert.Equal(t, []string{"k"}, n.Keys())
		})
	}
}

func TestDirectivesOfTheTestReachTheServer(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1, nodes.WithConfig("maxmemory", "7mb"), nodes.WithConfig("save", "3600", "1"), nodes.WithConfig("appendfilename", `strange "name`))
			for name, want := range map[string]string{"maxmemory": "7340032", "save": "3600 1", "appendfilename": `strange "name`} {
				got, err := redis.StringMap(c.Node(0).Do("CONFIG", "GET", name))
				require.NoError(t, err)
				assert.Equal(t, map[string]string{name: want}, got)
			}
		})
	}
}

func TestWithTLSOnlyTLSWithTheRightAuthorityGetsIn(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1, nodes.WithTLS())
			url := c.Node(0).URL()
			require.True(t, strings.HasPrefix(url, "rediss://"), url)
			_, err := dial(t, url, redis.DialTLSConfig(c.TLSConfig())).Do("PING")
			require.NoError(t, err)

			bare := c.TLSConfig()
			bare.Certificates = nil
			_, err = dial(t, url, redis.DialTLSConfig(bare)).Do("PING")
			require.NoError(t, err, "a client need not have a certificate")

			_, err = tryDial(url, redis.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
			var unknown *tls.CertificateVerificationError
			require.ErrorAs(t, err, &unknown)

			plain, err := tryDial("redis://" + c.Node(0).Addr())
			if err == nil {
				_, err = plain.Do("PING")
				_ = plain.Close()
			}
			require.Error(t, err)
		})
	}
}

func TestWithACLTheUserMayDoWhatTheRulesSayAndNobodyElseGetsIn(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			c := start(t, 1, nodes.WithACL("locker", "s3cret /@", "~lock:*", "+set", "+get"))
			n := c.Node(0)
			conn := dial(t, n.URL())
			_, err := conn.Do("SET", "lock:a", "v")
			require.NoError(t, err)
			_, err = conn.Do("SET", "other", "v")
			require.ErrorContains(t, err, "NOPERM")
			_, err = dial(t, "redis://"+n.Addr()).Do("PING")
			require.ErrorContains(t, err, "NOAUTH")
			assert.Equal(t, []string{"lock:a"}, n.Keys())
		})
	}
}

func TestWithUnixSocketTheNodeIsAtAPath(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			n := start(t, 1, nodes.WithUnixSocket()).Node(0)
			path, ok := strings.CutPrefix(n.Addr(), "unix://")
			require.True(t, ok, n.Addr())
			conn, err := redis.Dial("unix", path)
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Do("SET", "k", "v")
			require.NoError(t, err)
			n.Stop()
			n.Start()
			assert.Empty(t, n.Keys())
		})
	}
}

func TestWithIPv6TheNodeIsAtTheIPv6Loopback(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			n := start(t, 1, nodes.WithIPv6()).Node(0)
			assert.True(t, strings.HasPrefix(n.Addr(), "[::1]:"), n.Addr())
			_, err := dial(t, n.URL()).Do("PING")
			require.NoError(t, err)
		})
	}
}

func TestAServerThatCannotStartFailsAtOnceAndShowsItsLog(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			start := having(t, kind)
			rec := &recorder{TB: t}
			began := time.Now()
			rec.run(func() { start(rec, 1, nodes.WithConfig("maxmemory", "nonsense")) })
			if rec.skipped {
				t.Skip(rec.message)
			}
			assert.Contains(t, rec.message, "maxmemory")
			assert.Less(t, time.Since(began), 15*time.Second)
		})
	}
}

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	message string
	skipped bool
}

type stop struct{}

func (r *recorder) run(f func()) {
	defer func() {
		if p := recover(); p != nil && p != (stop{}) {
			panic(p)
		}
	}()
	f()
}

func (r *recorder) end(skipped bool, message string) {
	r.message, r.skipped = message, skipped
	panic(stop{})
}

func (r *recorder) Helper()                      {}
func (r *recorder) Fatal(args ...any)            { r.end(false, fmt.Sprint(args...)) }
func (r *recorder) Fatalf(f string, args ...any) { r.end(false, fmt.Sprintf(f, args...)) }
func (r *recorder) Skip(args ...any)             { r.end(true, fmt.Sprint(args...)) }
func (r *recorder) Skipf(f string, args ...any)  { r.end(true, fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)            { r.message = fmt.Sprint(args...) }
func (r *recorder) Errorf(f string, args ...any) { r.message = fmt.Sprintf(f, args...) }

func TestTheMostRealBackendThatCanBeHadIsTaken(t *testing.T) {
	missing := errors.New("not\nhere")
	for _, tt := range []struct {
		demanded           string
		noImage, noBinary  error
		want               nodes.Kind
		wantLine, wantFail string
	}{
		{want: nodes.Container, wantLine: "because a Docker engine answers"},
		{noImage: missing, want: nodes.Process, wantLine: "containers cannot be had: not here"},
		{noImage: missing, noBinary: missing, want: nodes.Embedded, wantLine: "neither"},
		{demanded: "process", want: nodes.Process, wantLine: "because REDLOCK_TEST_BACKEND=process"},
		{demanded: "embedded", want: nodes.Embedded},
		{demanded: "container", noImage: missing, wantFail: "REDLOCK_TEST_BACKEND=container demands what cannot be had"},
		{demanded: "process", noBinary: missing, wantFail: "REDLOCK_TEST_BACKEND=process demands what cannot be had"},
		{demanded: "Docker", wantFail: "use container, process or embedded"},
	} {
		t.Run(fmt.Sprintf("demanded=%s,container=%t,process=%t", tt.demanded, tt.noImage == nil, tt.noBinary == nil), func(t *testing.T) {
			kind, line, err := nodes.ChooseWith(tt.demanded, "image", tt.noImage, "binary", tt.noBinary)
			if tt.wantFail != "" {
				require.ErrorContains(t, err, tt.wantFail)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, kind)
			assert.Contains(t, line, tt.wantLine)
			assert.NotContains(t, line, "\n")
		})
	}
}

func TestAnOwnerIsGoneOnlyWhenThatIsCertain(t *testing.T) {
	if !nodes.CanSweep {
		t.Skip("processes have no birth here")
	}
	birth, alive := nodes.ProcessBirth(os.Getpid())
	require.True(t, alive)
	assert.False(t, nodes.OwnerIsGone(nodes.OwnerOf(os.Getpid(), birth)))
	assert.True(t, nodes.OwnerIsGone(nodes.OwnerOf(os.Getpid(), birth+"0")), "an id that was given out again")
	assert.True(t, nodes.OwnerIsGone(nodes.OwnerOf(1<<22+1, birth)), "above any id that Linux gives out")
	assert.False(t, nodes.OwnerIsGone("elsewhere 1 1"), "a process of another host")
	assert.False(t, nodes.OwnerIsGone("nonsense"))
}

// victimVariable makes the test binary one that starts nodes, says what they are, and waits for its death.
const victimVariable = "REDLOCK_TEST_VICTIM"

func TestVictim(t *testing.T) {
	kind := nodes.Kind(os.Getenv(victimVariable))
	if kind == "" {
		t.Skip("started by killedVictim")
	}
	c := having(t, kind)(t, 2)
	if kind == nodes.Process {
		for pid, dir := range c.Processes() {
			fmt.Println("victim", pid, dir)
		}
	} else {
		for _, id := range c.ContainerIDs() {
			fmt.Println("victim", id)
		}
	}
	fmt.Println("ready")
	select {}
}

// killedVictim starts nodes in another test process, kills it, and returns what the nodes were.
func killedVictim(t *testing.T, kind nodes.Kind) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVictim$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), victimVariable+"="+string(kind))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var names []string
	scanner := bufio.NewScanner(out)
	for scanner.Scan() && scanner.Text() != "ready" {
		if name, ok := strings.CutPrefix(scanner.Text(), "victim "); ok {
			names = append(names, name)
		}
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Len(t, names, 2)
	return names
}

func TestProcessesDoNotOutliveATestThatWasKilled(t *testing.T) {
	if !nodes.CanSweep {
		t.Skip("only Linux kills a process with its parent")
	}
	start := demandedOr(t, nodes.Process)
	var dirs []string
	for _, name := range killedVictim(t, nodes.Process) {
		var pid int
		var dir string
		_, err := fmt.Sscan(name, &pid, &dir)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return nodes.ProcessIsGone(pid) }, 10*time.Second, 10*time.Millisecond)
		dirs = append(dirs, dir)
	}
	start(t, 1)
	for _, dir := range dirs {
		assert.NoDirExists(t, dir, "the next start must remove the files")
	}
}

func TestContainersOfATestThatWasKilledAreRemovedByTheNext(t *testing.T) {
	if !nodes.CanSweep {
		t.Skip("processes have no birth here")
	}
	start := demandedOr(t, nodes.Container)
	victims := killedVictim(t, nodes.Container)
	living := start(t, 1).ContainerIDs()
	start(t, 1)
	for _, id := range victims {
		exists, err := nodes.ContainerExists(context.WithoutCancel(t.Context()), id)
		require.NoError(t, err)
		assert.False(t, exists)
	}
	for _, id := range living {
		exists, err := nodes.ContainerExists(t.Context(), id)
		require.NoError(t, err)
		assert.True(t, exists, "a container whose owner lives must be left alone")
	}
}

// demandedOr skips the test when another kind is demanded, and fails it when this one is and cannot be had.
func demandedOr(t *testing.T, kind nodes.Kind) starter {
	t.Helper()
	if d := os.Getenv(nodes.BackendVariable); d != "" && d != string(kind) {
		t.Skipf("%s=%s", nodes.BackendVariable, d)
	}
	return having(t, kind)
}
