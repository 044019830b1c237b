//go:build unix

package integration_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
)

// commandDir is where command has built; empty if it has not.
var commandDir string

// command builds the command, once, and returns its path. Its module is the
// root, which has what it imports. TestMain removes it.
var command = sync.OnceValues(func() (path string, err error) {
	if commandDir, err = os.MkdirTemp("", "redlock-command-"); err != nil {
		return "", err
	}
	path = filepath.Join(commandDir, "redlock")
	build := exec.Command("go", "build", "-o", path, "./cmd/redlock")
	build.Dir = ".."
	build.Stderr = os.Stderr
	return path, build.Run()
})

// redlockCommand returns the command on the nodes.
func redlockCommand(t *testing.T, c *nodes.Cluster, args ...string) *exec.Cmd {
	t.Helper()
	path, err := command()
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "REDLOCK_NODES="+strings.Join(c.URLs(), ","),
		"REDLOCK_NODE_TIMEOUT=5s") // the machine may be busy
	return cmd
}

// runCommand runs the command to its end.
func runCommand(t *testing.T, c *nodes.Cluster, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := redlockCommand(t, c, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the state says more
	require.NotNil(t, cmd.ProcessState, errs.String())
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// running is a command under way; its lines end when nobody has its output any
// more, a grandchild included.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	errs  bytes.Buffer
}

func startRunning(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd, lines: make(chan string, 100)}
	stdout, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, &r.errs
	cmd.WaitDelay = time.Second // for its standard error
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	go func() {
		defer close(r.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			r.lines <- s.Text()
		}
		_ = stdout.Close()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test has failed
	return r
}

// line returns the next line, or fails the test; empty if there is none to come.
func (r *running) line() string {
	r.t.Helper()
	select {
	case line := <-r.lines:
		return line
	case <-time.After(eventually):
		require.Fail(r.t, "neither a line nor the end")
		return ""
	}
}

func TestTheLossOfAMajorityStopsACommandAndWhatItHasStarted(t *testing.T) {
	c := nodes.Start(t, 5)
	const ttl = 15 * time.Second
	r := startRunning(t, redlockCommand(t, c, "run", "--ttl", ttl.String(), "--grace", "3s", "job", "--", "sh", "-c",
		`exec 2>/dev/null; sh -c 'trap "" TERM; echo grandchild; while :; do sleep 0.1; done' & trap 'echo told' TERM; echo child; while :; do sleep 0.1; done`))
	assert.ElementsMatch(t, []string{"child", "grandchild"}, []string{r.line(), r.line()})
	for i := range 2 {
		c.Node(i).Kill()
	}
	select {
	case line := <-r.lines:
		require.Fail(t, "a minority is enough", line)
	case <-time.After(ttl / 2):
	}
	c.Node(2).Kill()
	lost := time.Now()
	assert.Equal(t, "told", r.line())
	assert.Less(t, time.Since(lost), ttl, "before the lock has ended")
	assert.Empty(t, r.line(), "somebody is left")
	_ = r.cmd.Wait() // the state says more
	assert.Equal(t, 195, r.cmd.ProcessState.ExitCode())
	assert.Contains(t, r.errs.String(), "the lock is running out: renew \"job\": no quorum of nodes")
	assert.Contains(t, r.errs.String(), c.Node(2).Addr())
}

func TestTheCommandOperatesLocksOnRealNodes(t *testing.T) {
	c := nodes.Start(t, 5)
	status, _, _ := runCommand(t, c, "inspect", "job")
	assert.Equal(t, 1, status)

	cmd := redlockCommand(t, c, "run", "--fence", "--owner", "db1", "job", "--", "sh", "-c", `echo "$REDLOCK_FENCING_TOKEN"; exec sleep 1000`)
	r := startRunning(t, cmd)
	token := r.line()

	status, out, errs := runCommand(t, c, "inspect", "job")
	assert.Equal(t, 0, status, errs)
	assert.Contains(t, out, "job: held by db1 on 5 of 5 nodes")
	assert.Contains(t, out, "last fencing token: "+token)

	status, out, errs = runCommand(t, c, "list", "--json")
	assert.Equal(t, 0, status, errs)
	var listed struct{ Name, State, Owner string }
	require.NoError(t, json.Unmarshal([]byte(out), &listed))
	assert.Equal(t, "job", listed.Name)
	assert.Equal(t, "held", listed.State)

	status, _, errs = runCommand(t, c, "run", "--try", "job", "--", "true")
	assert.Equal(t, 193, status, errs)

	status, out, errs = runCommand(t, c, "break", "--yes", "job")
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, "job: broken; it was held by db1\n", out)
	assert.Empty(t, r.line())
	_ = r.cmd.Wait() // the state says more
	assert.Equal(t, 195, r.cmd.ProcessState.ExitCode())
	assert.Contains(t, r.errs.String(), `lock "job" lost`)

	status, out, errs = runCommand(t, c, "bench", "--duration", "300ms")
	assert.Equal(t, 0, status, errs)
	assert.Contains(t, out, "5 nodes, 1 at once")
	status, out, _ = runCommand(t, c, "check")
	assert.Equal(t, 0, status, out)

	for i := range 3 {
		c.Node(i).Kill()
	}
	for _, args := range [][]string{{"run", "--try", "job", "--", "true"}, {"inspect", "job"}, {"list"}, {"break", "-y", "job"}, {"bench"}} {
		status, _, errs = runCommand(t, c, args...)
		assert.Equal(t, 194, status, "%v: %s", args, errs)
	}
	status, out, _ = runCommand(t, c, "check")
	assert.Equal(t, 1, status, out)
}

func TestTheCommandReachesNodesThatWantAPasswordAndEncryption(t *testing.T) {
	c := nodes.Start(t, 3, nodes.WithTLS(), nodes.WithACL("locker", "p:ss word", "~*", "&*", "+@all"))
	// Nothing but the flag can make the nodes' certificates trusted.
	var trusted []byte
	for _, addr := range c.Addrs() {
		conn, err := tls.Dial("tcp", addr, c.TLSConfig())
		require.NoError(t, err)
		leaf := conn.ConnectionState().PeerCertificates[0]
		trusted = append(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})...)
		_ = conn.Close() // nothing was said
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, trusted, 0o600))

	status, out, errs := runCommand(t, c, "--tls-ca", file, "run", "job", "--", "echo", "ran")
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, "ran\n", out)

	status, out, errs = runCommand(t, c, "run", "--try", "job", "--", "echo", "ran")
	assert.Equal(t, 194, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "certificate")
	assert.NotContains(t, errs, "ss word")
}
