package redlocktest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A scene is where a test takes place.
type scene struct {
	t       *testing.T
	cluster *redlocktest.Cluster
}

// each runs a test over TCP in real time, and over pipes in a bubble.
func each(t *testing.T, nodes int, test func(scene)) {
	t.Helper()
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		test(scene{t, redlocktest.Start(t, nodes)})
	})
	t.Run("piped", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			test(scene{t, redlocktest.StartPiped(t, nodes)})
		})
	})
}

// dial connects to the i-th node; the connection is closed before the cluster.
func dial(t *testing.T, c *redlocktest.Cluster, i int) redis.Conn {
	t.Helper()
	conn, err := tryDial(t, c, i)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func tryDial(t *testing.T, c *redlocktest.Cluster, i int) (redis.Conn, error) {
	t.Helper()
	return redis.DialContext(t.Context(), "tcp", c.Node(i).Addr(), redis.DialContextFunc(c.Dial))
}

// do executes a command that must succeed.
func do(t *testing.T, conn redis.Conn, command string, args ...any) any {
	t.Helper()
	reply, err := conn.Do(command, args...)
	require.NoError(t, err)
	return reply
}

// send sends a command and does not wait for the answer.
func send(t *testing.T, conn redis.Conn, command string, args ...any) {
	t.Helper()
	require.NoError(t, conn.Send(command, args...))
	require.NoError(t, conn.Flush())
}

// eventually polls for what happens on the other side of a connection. In a
// bubble the poll costs nothing.
func eventually(t *testing.T, condition func() bool, msg string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within 10 s: %s", msg)
		case <-time.After(time.Millisecond):
		}
	}
}
