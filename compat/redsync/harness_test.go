package redsync_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/compat/redsync"
	"github.com/redquorum/go-redlock/compat/redsync/redis"
	"github.com/redquorum/go-redlock/compat/redsync/redis/redigo"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const job = "job"

// bubble runs a test in virtual time, on nodes of its own.
func bubble(t *testing.T, nodes int, body func(t *testing.T, c *redlocktest.Cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { body(t, redlocktest.StartPiped(t, nodes)) })
}

// newRedsync makes a Redsync on redigo pools, whose connections are up already.
func newRedsync(t *testing.T, c *redlocktest.Cluster) *redsync.Redsync {
	t.Helper()
	return newRedsyncOn(t, redigoPools(t, c, c.Dial)...)
}

func newRedsyncOn(t *testing.T, pools ...redis.Pool) *redsync.Redsync {
	t.Helper()
	rs := redsync.NewOn(pools, clock.Monotonic())
	t.Cleanup(func() { assert.NoError(t, rs.Close()) })
	warm := rs.NewMutex("warm-up")
	if warm.TryLock() == nil {
		_, err := warm.Unlock()
		require.NoError(t, err)
	}
	synctest.Wait()
	return rs
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

func redigoPools(t *testing.T, c *redlocktest.Cluster, dial dialFunc) []redis.Pool {
	t.Helper()
	return redigoPoolsWith(t, c, dial, func(*redigolib.Pool) {})
}

// redigoPoolsWith makes pools with settings and options of the test's own.
func redigoPoolsWith(t *testing.T, c *redlocktest.Cluster, dial dialFunc, set func(*redigolib.Pool), options ...pool.Option) []redis.Pool {
	t.Helper()
	var pools []redis.Pool
	for _, addr := range c.Addrs() {
		p := &redigolib.Pool{MaxIdle: 3, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, "tcp", addr, redigolib.DialContextFunc(dial))
		}}
		t.Cleanup(func() { assert.NoError(t, p.Close()) })
		set(p)
		pools = append(pools, redigo.NewPool(p, options...))
	}
	return pools
}

// locked makes a mutex and locks it.
func locked(t *testing.T, rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	t.Helper()
	m := rs.NewMutex(job, options...)
	require.NoError(t, m.Lock())
	synctest.Wait()
	return m
}

// timed returns how long f takes.
func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func requireFree(t *testing.T, c *redlocktest.Cluster) {
	t.Helper()
	synctest.Wait()
	require.Empty(t, c.Holders(job))
}

// recorder notes on which nodes something is written, in that order.
type recorder struct {
	mu    sync.Mutex
	addrs []string
}

func (r *recorder) dial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &recorded{conn, r, addr}, err
	}
}

// take returns what was noted since the last time.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs := r.addrs
	r.addrs = nil
	return addrs
}

type recorded struct {
	net.Conn
	recorder *recorder
	addr     string
}

func (c *recorded) Write(b []byte) (int, error) {
	c.recorder.mu.Lock()
	c.recorder.addrs = append(c.recorder.addrs, c.addr)
	c.recorder.mu.Unlock()
	return c.Conn.Write(b)
}
