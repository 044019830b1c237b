package integration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

const (
	// peerTTL is the TTL of both libraries here. Redsync deletes a key once: on a node that was down just then, it
	// stays until the TTL ends, and is in the way of both.
	peerTTL = 3 * time.Second
	// restartEvery leaves time for that.
	restartEvery = 2 * time.Second
	// peerRounds are the least that a test goes through, and peerRestarts the least that happen meanwhile.
	peerRounds, peerRestarts = 300, 3
)

// startPeers starts five nodes that keep their keys over a restart, a Locker, and a redsync on the same nodes.
func startPeers(t *testing.T) (*nodes.Cluster, *redlock.Locker, *redsync.Redsync) {
	t.Helper()
	opts := []nodes.Option{nodes.WithAOF()}
	if kind, err := nodes.Backend(); err == nil && kind != nodes.Embedded {
		// SIGKILL loses nothing that was written, and a busy disk is not the question here.
		opts = append(opts, nodes.WithConfig("appendfsync", "no"))
	}
	c := nodes.Start(t, 5, opts...)
	ours := newLocker(t, c, redlock.WithTTL(peerTTL), redlock.WithRetryDelay(5*time.Millisecond, 20*time.Millisecond))
	var pools []redsyncredis.Pool
	for _, addr := range c.Addrs() {
		p := &redis.Pool{
			MaxIdle: 8,
			DialContext: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", addr,
					redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second), redis.DialWriteTimeout(time.Second))
			},
		}
		t.Cleanup(func() { assert.NoError(t, p.Close()) })
		pools = append(pools, redsyncredigo.NewPool(p))
	}
	return c, ours, redsync.New(pools...)
}

// theirs is a new redsync mutex; each holder needs one of its own.
func theirs(peer *redsync.Redsync, name string) *redsync.Mutex {
	return peer.NewMutex(name, redsync.WithExpiry(peerTTL), redsync.WithTries(1000),
		redsync.WithRetryDelayFunc(func(int) time.Duration { return 5*time.Millisecond + rand.N(15*time.Millisecond) }))
}

// restarts kills one node after the other and starts it again, one at a time, and counts, until stop is called. That
// returns when all nodes are up again.
func restarts(c *nodes.Cluster) (count *atomic.Int64, stop func()) {
	var wg sync.WaitGroup
	end := make(chan struct{})
	count = new(atomic.Int64)
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(restartEvery):
			}
			n := c.Node(int(count.Load()) % c.Len())
			n.Kill()
			n.Start()
			count.Add(1)
		}
	})
	return count, sync.OnceFunc(func() {
		close(end)
		wg.Wait()
	})
}

// holding returns the nodes that have the token.
func holding(c *nodes.Cluster, token string) map[*nodes.Node]bool {
	found := map[*nodes.Node]bool{}
	for _, n := range c.Nodes() {
		if holder, err := redis.String(n.Do("GET", "job")); err == nil && holder == token {
			found[n] = true
		}
	}
	return found
}

func TestRedsyncAndWeRefuseEachOtherInTurnsWhileNodesRestart(t *testing.T) {
	c, ours, peer := startPeers(t)
	count, stop := restarts(c)
	defer stop()
	rounds := 0
	for ; rounds < peerRounds || count.Load() < peerRestarts; rounds++ {
		k, err := ours.Acquire(t.Context(), "job")
		require.NoError(t, err)
		err = theirs(peer, "job").TryLockContext(t.Context())
		require.Error(t, err, "redsync got a lock that we hold")
		require.NoError(t, k.Release(t.Context()))

		m := theirs(peer, "job")
		require.NoError(t, m.LockContext(t.Context()))
		before := holding(c, m.Value())
		_, err = ours.TryAcquire(t.Context(), "job")
		require.Error(t, err, "we got a lock that redsync holds")
		// While a node is down, what redsync left on another by missing it in its last Unlock can leave too few.
		require.True(t, errors.Is(err, redlock.ErrTaken) || errors.Is(err, redlock.ErrNoQuorum), "%v", err)
		for n := range before {
			holder, err := redis.String(n.Do("GET", "job"))
			down := err != nil && !errors.Is(err, redis.ErrNil)
			require.True(t, down || holder == m.Value() || !time.Now().Before(m.Until()), "our failed attempt cost redsync its lock on %s", n)
		}
		_, _ = m.UnlockContext(t.Context()) // false if it had a bare quorum and one of those is down
	}
	stop()
	t.Logf("%d rounds, %d restarts", rounds, count.Load())
	requireNoTokensOfOurs(t, c)
}

// requireNoTokensOfOurs waits until no node has a token of ours. Redsync does not try again to delete a key on a node
// that was down: its keys end with their TTL.
func requireNoTokensOfOurs(t *testing.T, c *nodes.Cluster) {
	t.Helper()
	for _, n := range c.Nodes() {
		require.Eventually(t, func() bool {
			token, err := redis.String(n.Do("GET", "job"))
			// Ours have the owner behind a dot; redsync's are base64.
			return errors.Is(err, redis.ErrNil) || err == nil && !strings.Contains(token, ".")
		}, eventually, 10*time.Millisecond, "%s still has a token of ours", n)
	}
}

func TestRedsyncAndWeNeverHoldALockTogetherWhileNodesRestart(t *testing.T) {
	c, ours, peer := startPeers(t)
	const contenders = 3 // of each library
	var inside, entered, byUs, byThem, together, overstayed atomic.Int64
	// section is what the lock protects. A lock protects it while it is valid; a machine that stands still for longer
	// than the TTL proves nothing.
	section := func(by *atomic.Int64, valid func() bool) {
		if inside.Add(1) != 1 {
			together.Add(1)
		}
		time.Sleep(rand.N(time.Millisecond))
		if !valid() {
			overstayed.Add(1)
		}
		inside.Add(-1)
		entered.Add(1)
		by.Add(1)
	}
	count, stop := restarts(c)
	defer stop()
	// Each library must have had its turns, which are not shared out fairly.
	enough := func() bool {
		return entered.Load() >= peerRounds && byUs.Load() >= peerRounds/10 && byThem.Load() >= peerRounds/10 &&
			count.Load() >= peerRestarts
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range contenders {
		wg.Go(func() {
			for !enough() {
				k, err := ours.Acquire(ctx, "job")
				if err != nil {
					t.Errorf("ours: %v", err)
					return
				}
				section(&byUs, func() bool { return k.Validity() > 0 })
				if err := k.Release(ctx); err != nil && overstayed.Load() == 0 {
					t.Errorf("ours: %v", err)
				}
				time.Sleep(rand.N(20 * time.Millisecond)) // the others wait between their tries, too
			}
		})
		wg.Go(func() {
			for !enough() {
				m := theirs(peer, "job")
				if err := m.LockContext(ctx); err != nil {
					t.Errorf("redsync: %v", err)
					return
				}
				section(&byThem, func() bool { return time.Now().Before(m.Until()) })
				_, _ = m.UnlockContext(ctx) // false if it had a bare quorum and one of those is down
			}
		})
	}
	wg.Wait()
	stop()
	if overstayed.Load() == 0 {
		assert.Zero(t, together.Load(), "so often, two were in the section that the lock protects")
	}
	t.Logf("%d sections of ours and %d of redsync's, %d restarts", byUs.Load(), byThem.Load(), count.Load())
	requireNoTokensOfOurs(t, c)
}
