package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/internal/port"
	"github.com/redquorum/go-redlock/integration/nodes"
)

// composeCommands are both in use: the plugin, and docker-compose 1.29, which many distributions still have.
var composeCommands = [][]string{{"docker", "compose"}, {"docker-compose"}}

// TestTheComposeFileRunsTheQuickStart starts the file that users are told to start, with what they have to start
// it, and runs the program that the README begins with on it.
func TestTheComposeFileRunsTheQuickStart(t *testing.T) {
	image, err := nodes.Image()
	require.NoError(t, err)
	if image == "" {
		t.Skip("the nodes of this run are not containers")
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	found := false
	for _, command := range composeCommands {
		name := strings.Join(command, " ")
		if err := exec.CommandContext(t.Context(), command[0], append(command[1:], "version")...).Run(); err != nil {
			t.Logf("there is no %s here: %v", name, err)
			continue
		}
		found = true
		t.Run(name, func(t *testing.T) { runQuickStart(t, root, command, image) })
	}
	if !found && os.Getenv("REDLOCK_TEST_BACKEND") != string(nodes.Container) {
		t.Skip("there is neither docker compose nor docker-compose, and nobody demanded containers")
	}
	require.True(t, found, "containers are demanded, and there is neither docker compose nor docker-compose")
}

func runQuickStart(t *testing.T, root string, command []string, image string) {
	project := fmt.Sprintf("go-redlock-test-%d", os.Getpid())
	env := append(os.Environ(), "REDIS_IMAGE="+image)
	var addrs []string
	for i := range 5 {
		number, err := port.Reserve(t, "127.0.0.1")
		require.NoError(t, err)
		env = append(env, fmt.Sprintf("REDLOCK_PORT_%d=%d", i+1, number))
		addrs = append(addrs, "127.0.0.1:"+strconv.Itoa(number))
	}
	compose := func(args ...string) (string, error) {
		// Not the test's context: it is over when the cleanup runs.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) //nolint:usetesting // see above
		defer cancel()
		all := append(append([]string{}, command[1:]...), "-p", project, "-f", filepath.Join(root, "docker-compose.yml"))
		cmd := exec.CommandContext(ctx, command[0], append(all, args...)...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	down := func() {
		out, err := compose("down", "--volumes", "--remove-orphans")
		assert.NoError(t, err, out)
	}
	t.Cleanup(down)

	out, err := compose("up", "-d")
	require.NoError(t, err, out)
	for _, addr := range addrs {
		require.Eventually(t, func() bool { return answers(addr) }, eventually, 50*time.Millisecond, "node at %s", addr)
	}

	quickstart := exec.CommandContext(t.Context(), "go", "run", "./examples/quickstart")
	quickstart.Dir = root
	quickstart.Env = append(os.Environ(), "REDLOCK_NODES="+strings.Join(addrs, ","))
	said, err := quickstart.CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Contains(t, string(said), `holds "quickstart"`)
	assert.NotContains(t, string(said), "embedded")
	for _, addr := range addrs {
		require.Eventually(t, func() bool {
			size, err := ask(addr, "DBSIZE")
			return err == nil && size == int64(0)
		}, eventually, 10*time.Millisecond, "a key is left on %s", addr)
	}

	down()
	for _, addr := range addrs {
		assert.False(t, answers(addr), "the node at %s is still there", addr)
	}
	left, err := exec.CommandContext(t.Context(), "docker", "volume", "ls", "-q", "--filter", "name="+project).Output()
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(string(left)), "volumes are left")
}

// ask sends one command to a node that is not of package nodes.
func ask(addr, command string) (any, error) {
	const patience = 2 * time.Second
	conn, err := redis.Dial("tcp", addr, redis.DialConnectTimeout(patience), redis.DialReadTimeout(patience))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Do(command)
}

func answers(addr string) bool {
	_, err := ask(addr, "PING")
	return err == nil
}
