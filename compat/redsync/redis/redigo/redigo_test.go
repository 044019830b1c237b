package redigo_test

import (
	"context"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/compat/redsync/redis"
	"github.com/redquorum/go-redlock/compat/redsync/redis/redigo"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*redlocktest.Node, redis.Pool) {
	t.Helper()
	c := redlocktest.Start(t, 1)
	p := &redigolib.Pool{Dial: func() (redigolib.Conn, error) { return redigolib.Dial("tcp", c.Addrs()[0]) }}
	t.Cleanup(func() { _ = p.Close() })
	return c.Node(0), redigo.NewPool(p)
}

func TestAConnectionDoesWhatItSays(t *testing.T) {
	_, p := start(t)
	var none context.Context
	for _, ctx := range []context.Context{t.Context(), none} {
		conn, err := p.Get(ctx)
		require.NoError(t, err)

		value, err := conn.Get("key")
		require.NoError(t, err, "no key is no error")
		require.Empty(t, value)
		ttl, err := conn.PTTL("key")
		require.NoError(t, err)
		require.Equal(t, -2*time.Millisecond, ttl)

		ok, err := conn.SetNX("key", "value", time.Minute+999*time.Microsecond)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = conn.SetNX("key", "another", time.Minute)
		require.NoError(t, err)
		require.False(t, ok)
		ttl, err = conn.PTTL("key")
		require.NoError(t, err)
		require.InDelta(t, time.Minute.Seconds(), ttl.Seconds(), 30)

		ok, err = conn.Set("key", "third")
		require.NoError(t, err)
		require.True(t, ok)
		value, err = conn.Get("key")
		require.NoError(t, err)
		require.Equal(t, "third", value)
		ttl, err = conn.PTTL("key")
		require.NoError(t, err)
		require.Equal(t, -time.Millisecond, ttl)

		script := redis.NewScript(1, "return redis.call('DEL', KEYS[1])", "")
		require.NoError(t, conn.ScriptLoad(script))
		require.Len(t, script.Hash, 40)
		deleted, err := conn.Eval(script, "key")
		require.NoError(t, err)
		require.EqualValues(t, 1, deleted)
		deleted, err = conn.Eval(redis.NewScript(-1, "return #KEYS + 10 * #ARGV", "0000000000000000000000000000000000000000"), 2, "a", "b", "c")
		require.NoError(t, err, "a script that the node does not know is sent")
		require.EqualValues(t, 12, deleted)
		require.NoError(t, conn.Close())
	}
}

func TestANodeThatHangsIsNotWaitedFor(t *testing.T) {
	node, p := start(t)
	conn, err := p.Get(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	node.Hang()
	defer node.Resume()
	_, err = conn.Get("key")
	require.Error(t, err)
}

func TestOptionsReachTheNode(t *testing.T) {
	p := redigo.NewPool(&redigolib.Pool{}, pool.WithTimeout(3*time.Second))
	node, err := p.Node()
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, node.Timeout())
	require.NoError(t, node.Close())
	_, err = redigo.NewPool(&redigolib.Pool{}, pool.WithDialer(nil)).Node()
	require.Error(t, err)
}
