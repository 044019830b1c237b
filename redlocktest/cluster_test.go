package redlocktest_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

func TestEveryNodeHasItsOwnAddressAndItsOwnData(t *testing.T) {
	each(t, 3, func(s scene) {
		t, c := s.t, s.cluster
		require.Equal(t, 3, c.Len())
		addrs := c.Addrs()
		require.Len(t, addrs, 3)
		for i := range c.Len() {
			assert.Equal(t, addrs[i], c.Node(i).Addr())
			assert.Equal(t, "OK", do(t, dial(t, c, i), "SET", "key", i))
		}
		for i := range c.Len() {
			value, err := redis.Int(dial(t, c, i).Do("GET", "key"))
			require.NoError(t, err)
			assert.Equal(t, i, value)
		}
		slices.Sort(addrs)
		assert.Len(t, slices.Compact(addrs), 3)
	})
}

func TestATCPClusterNeedsNoDialerOfItsOwn(t *testing.T) {
	c := redlocktest.Start(t, 1)
	conn, err := redis.Dial("tcp", c.Addrs()[0])
	require.NoError(t, err)
	assert.Equal(t, "PONG", do(t, conn, "PING"))
	require.NoError(t, conn.Close())
}

func TestPipedAddressesAreNames(t *testing.T) {
	c := redlocktest.StartPiped(t, 2)
	assert.Equal(t, []string{"node1.redlocktest:6379", "node2.redlocktest:6379"}, c.Addrs())
}

func TestDialRefusesAnAddressThatIsNotOfTheCluster(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		_, err := c.Dial(t.Context(), "tcp", "elsewhere:6379")
		var addrErr *net.AddrError
		require.ErrorAs(t, err, &addrErr)
		assert.Equal(t, "elsewhere:6379", addrErr.Addr)
	})
}

func TestDialOnACancelledContextDoesNotConnect(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Dial(ctx, "tcp", c.Node(0).Addr())
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, c.Node(0).Connections())
	})
}

func TestNodePanicsOutsideTheCluster(t *testing.T) {
	c := redlocktest.StartPiped(t, 3)
	assert.PanicsWithValue(t, "redlocktest: no node 3 in a cluster of 3", func() { c.Node(3) })
	assert.PanicsWithValue(t, "redlocktest: no node -1 in a cluster of 3", func() { c.Node(-1) })
}

func TestHoldersCountsTheNodesPerValue(t *testing.T) {
	each(t, 5, func(s scene) {
		t, c := s.t, s.cluster
		assert.Empty(t, c.Holders("lock"))
		for i, token := range []string{"a", "a", "b", "a"} {
			c.Node(i).Set("lock", token, time.Minute)
		}
		do(t, dial(t, c, 4), "HSET", "lock", "field", "no string")
		c.Node(0).Stop()
		c.Node(1).Hang()
		assert.Equal(t, map[string]int{"a": 3, "b": 1}, c.Holders("lock"))
	})
}

func TestCloseEndsEverythingAndForGood(t *testing.T) {
	each(t, 3, func(s scene) {
		t, c := s.t, s.cluster
		// One of each that could be left over: idle, subscribed, hung, late.
		dial(t, c, 0)
		send(t, dial(t, c, 0), "SUBSCRIBE", "channel")
		send(t, dial(t, c, 0), "BLPOP", "list", 0)
		hung := dial(t, c, 1)
		c.Node(1).Hang()
		send(t, hung, "SET", "key", "value")
		late := dial(t, c, 2)
		c.Node(2).SetDelay(time.Hour)
		send(t, late, "SET", "key", "value")
		eventually(t, func() bool { return c.Node(0).Commands() == 2 }, "commands arrive")

		c.Close()
		c.Close()
		for i := range c.Len() {
			assert.Zero(t, c.Node(i).Connections())
			assert.Empty(t, c.Node(i).Keys())
			require.ErrorContains(t, c.Node(i).Restart(), "closed")
			_, err := c.Dial(t.Context(), "tcp", c.Node(i).Addr())
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		_, err := hung.Receive()
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestAProgramClosesItsOwnCluster(t *testing.T) {
	c, err := redlocktest.New(3)
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, "PONG", do(t, dial(t, c, 2), "PING"))
}

// recorder is a TB that survives Fatalf.
type recorder struct {
	fatal    string
	cleanups int
}

func (r *recorder) Helper()        {}
func (r *recorder) Cleanup(func()) { r.cleanups++ }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
}

func TestAClusterNeedsANode(t *testing.T) {
	var tb recorder
	assert.Nil(t, redlocktest.Start(&tb, 0))
	assert.Equal(t, "redlocktest: a cluster of 0 nodes", tb.fatal)
	assert.Zero(t, tb.cleanups)

	_, err := redlocktest.New(-1)
	require.Error(t, err)
}

func TestAPooledClientWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		pool := &redis.Pool{
			MaxIdle: 2,
			DialContext: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", c.Addrs()[0], redis.DialContextFunc(c.Dial))
			},
		}
		defer func() { assert.NoError(t, pool.Close()) }()
		conn := pool.Get()
		do(t, conn, "SET", "key", "value", "PX", 10_000)
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.Equal(t, 1, c.Node(0).Connections())
	})
}
