package redlock_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestALockIsHeldForTheMinimum(t *testing.T) {
	const hold = 5 * time.Second
	for name, ttl := range map[string]time.Duration{"a longer TTL": time.Minute, "a shorter TTL": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l, other := newLocker(t, c), newLocker(t, c, slowPoll)
				start := time.Now()
				k := acquired(t, l, job, redlock.WithTTL(ttl), redlock.WithMinHold(hold))
				got := wait(t.Context(), other)
				time.Sleep(500*time.Millisecond + time.Microsecond) // what is left is no whole number of milliseconds
				require.NoError(t, k.Release(t.Context()))
				requireOutcome(t, k.Err(), redlock.ErrReleased)
				require.Zero(t, k.Validity())
				require.NoError(t, k.Release(t.Context()), "the first result")
				time.Sleep(hold - time.Nanosecond - time.Since(start))
				requireHolders(t, c, k, 3)
				require.Empty(t, got)
				requireGrant(t, got, start.Add(hold), soon)
			})
		})
	}
}

func TestAfterTheMinimumALockIsReleasedAtOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithMinHold(time.Second))
		time.Sleep(time.Second)
		require.NoError(t, k.Release(t.Context()))
		requireFree(t, c, job)

		k = acquired(t, l, job, redlock.WithMinHold(time.Minute), redlock.WithTTL(time.Second))
		time.Sleep(2 * time.Second)
		acquired(t, l, job)
		requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
		k = acquired(t, l, "another", redlock.WithMinHold(time.Minute), redlock.WithTTL(time.Second))
		time.Sleep(995 * time.Millisecond) // its keys are still there
		requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
		requireFree(t, c, "another")
	})
}

func TestTheMinimumHoldsWhateverOneNodeDoes(t *testing.T) {
	const hold = 5 * time.Second
	troubles := map[string]func(n *redlocktest.Node){
		"down":     (*redlocktest.Node).Stop,
		"hung":     (*redlocktest.Node).Hang,
		"in doubt": func(n *redlocktest.Node) { n.DropReplies(true) },
		"failing":  func(n *redlocktest.Node) { n.SetError("LOADING", "EVALSHA", "EVAL") },
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				start := time.Now()
				k := acquired(t, l, job, redlock.WithTTL(time.Minute), redlock.WithMinHold(hold))
				synctest.Wait()
				n := c.Node(1)
				trouble(n)
				require.NoError(t, k.Release(t.Context()))
				time.Sleep(time.Second)
				n.Resume()
				n.DropReplies(false)
				n.SetError("")
				if name == "down" {
					require.NoError(t, n.Restart())
				}
				time.Sleep(hold - time.Millisecond - time.Since(start))
				requireHolders(t, c, k, 3)
				// A node that hung counts from when it woke, or is told then.
				time.Sleep(2*time.Second + time.Millisecond)
				requireFree(t, c, job)
			})
		})
	}
}

// The renewal would have to be sent again, with its source; but the release that
// was sent behind it has let the keys linger, and they would last for a TTL.
func TestARenewalIsNotSentAgainAfterARelease(t *testing.T) {
	const hold = time.Second
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		start := time.Now()
		k := acquired(t, l, job, redlock.WithTTL(time.Minute), redlock.WithMinHold(hold))
		synctest.Wait()
		for i := range 3 {
			forgetAcquire(t, c, i) // and to renew
			c.Node(i).SetReplyDelay(50 * time.Millisecond)
		}
		go func() { _ = k.Renew(t.Context()) }()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(hold - time.Millisecond - time.Since(start))
		requireHolders(t, c, k, 3)
		time.Sleep(2 * time.Millisecond)
		requireFree(t, c, job)
	})
}

func TestCloseDoesNotWaitForTheMinimum(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithMinHold(time.Minute))
		c.Node(0).Stop()
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(time.Second)
		require.Zero(t, took(func() { require.NoError(t, l.Close()) }))
		requireHolders(t, c, k, 3)
		time.Sleep(time.Minute)
		requireFree(t, c, job)
	})
}

func TestNonsensicalMinimaAreRefused(t *testing.T) {
	for _, opts := range [][]redlock.Option{
		{redlock.WithMinHold(-1)},
		{redlock.WithMinHold(367 * 24 * time.Hour)},
		{redlock.WithMaxHold(time.Second), redlock.WithMinHold(time.Second + 1)},
	} {
		_, err := redlock.New([]string{"localhost"}, opts...)
		requireOutcome(t, err, redlock.ErrConfig)
		require.ErrorContains(t, err, "WithMinHold(")
	}
}

// That a quorum is free of the lock is what a release wants, and not what a
// minimum hold wants.
func TestAMinimumHoldThatNoQuorumKeepsIsAnError(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l, other := newLocker(t, c), newLocker(t, c)
		each(c, []int{3, 4}, (*redlocktest.Node).Stop)
		k := acquired(t, l, job, redlock.WithMinHold(time.Minute))
		each(c, []int{3, 4}, func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
		time.Sleep(3 * time.Second) // they are known to be well
		c.Node(0).Stop()
		requireOutcome(t, k.Release(t.Context()), redlock.ErrNoQuorum)
		require.NoError(t, c.Node(0).Restart())
		time.Sleep(2 * redlock.DefaultTTL)
		acquired(t, other, job) // so there was something to tell
	})
}

// A lock that no caller was given keeps nobody out.
func TestALockThatIsNotHandedOutHasNoMinimumHold(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := &misdialled{Cluster: newCluster(t, 3)}
		c.wrong.Store(true)
		// The second node is the last to be connected, so that what is wrong
		// shows when the lock has been acquired.
		second := c.Addrs()[1]
		l := coldLocker(t, c.Cluster, redlock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == second {
				time.Sleep(100 * time.Millisecond)
			}
			return c.Dial(ctx, network, addr)
		}))
		_, err := l.TryAcquire(t.Context(), job, redlock.WithMinHold(time.Hour))
		requireOutcome(t, err, redlock.ErrConfig)
		time.Sleep(2 * redlock.DefaultTTL)
		requireFree(t, c.Cluster, job)
	})
}

func TestCloseDoesNotWaitForAMinimumHoldThatANodeHasNotHeardOf(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithMinHold(time.Minute))
		c.Node(0).Hang()
		require.NoError(t, k.Release(t.Context()))
		elapsed := took(func() { require.NoError(t, l.Close()) })
		require.LessOrEqual(t, elapsed, redlock.DefaultNodeTimeout+100*time.Millisecond, "the answer to the release is waited for, and no more")
	})
}
