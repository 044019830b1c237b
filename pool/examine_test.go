package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

// examined makes one node and its pool in a bubble.
func examined(t *testing.T, options ...pool.Option) (*redlocktest.Node, *pool.Pool) {
	t.Helper()
	c := redlocktest.StartPiped(t, 1)
	all := append([]pool.Option{pool.WithDialer(c.Dial), pool.WithClock(clock.Monotonic()), pool.WithTimeout(timeout)}, options...)
	p, err := pool.New(c.Addrs()[0], all...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return c.Node(0), p
}

func TestExamineTellsWhatANodeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := examined(t, pool.WithRestartGuard(time.Hour))
		n.SetDelay(10 * time.Millisecond)
		n.SetError("NOPERM", "PUBLISH")
		e, err := p.Examine(t.Context(), "channel", "chan*")
		require.NoError(t, err)
		assert.Equal(t, 10*time.Millisecond, e.RoundTrip)
		assert.Equal(t, "master", e.Info["role"])
		assert.Equal(t, map[string]string{"appendfsync": "everysec", "min-replicas-to-write": "0"}, e.Config)
		assert.Equal(t, time.Hour, e.Guard)
		require.ErrorContains(t, e.Publish, "NOPERM")
		assert.LessOrEqual(t, e.Ahead.Abs(), 10*time.Millisecond)
		for _, denied := range []error{e.InfoErr, e.ConfigErr, e.TimeErr, e.Load, e.Scan, e.Subscribe, e.Follow} {
			require.NoError(t, denied)
		}
		synctest.Wait()
		assert.Zero(t, n.Connections())
	})
}

func TestExamineIsBoundedByTheTimeoutTheContextAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := examined(t)
		n.Hang()
		start := time.Now()
		_, err := p.Examine(t.Context(), "channel", "chan*")
		require.ErrorIs(t, err, pool.ErrTimeout)
		assert.Equal(t, timeout, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = p.Examine(ctx, "channel", "chan*")
		require.Error(t, err)
		assert.Equal(t, timeout+time.Millisecond, time.Since(start))

		time.AfterFunc(time.Millisecond, func() { _ = p.Close() })
		_, err = p.Examine(t.Context(), "channel", "chan*")
		require.Error(t, err)
		assert.Equal(t, timeout+2*time.Millisecond, time.Since(start))
		_, err = p.Examine(t.Context(), "channel", "chan*")
		require.ErrorIs(t, err, pool.ErrClosed)
	})
}

func TestANodeWithOneConnectionCannotBeExamined(t *testing.T) {
	p, err := pool.Wrap("node", &redis.Pool{MaxActive: 1})
	require.NoError(t, err)
	_, err = p.Examine(t.Context(), "channel", "chan*")
	require.ErrorContains(t, err, "one connection only")
	require.NoError(t, p.Close())
}
