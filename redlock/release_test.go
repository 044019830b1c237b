package redlock_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestAReleaseDeletesTheKeyOnEveryNode(t *testing.T) {
	for _, n := range []int{1, 3, 5, 7} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, n)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				require.NoError(t, k.Release(t.Context()))
				requireFree(t, c, job)
				requireOutcome(t, k.Err(), redlock.ErrReleased)
				requireShape(t, k.Err())
				require.True(t, isDone(k.Done()))
				require.Zero(t, k.Validity())
				acquired(t, l, job)
			})
		})
	}
}

// A release is asked for before the slow nodes have granted.
func TestAReleaseFollowsAGrantThatIsStillUnderWay(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetDelay(100 * time.Millisecond) })
		k := acquired(t, l, job)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(200 * time.Millisecond)
		requireFree(t, c, job)
	})
}

func TestAReleaseSucceedsWithAMinorityDownAndIsDoneLater(t *testing.T) {
	for fault, strike := range map[string]struct{ on, off func(*redlocktest.Node) }{
		"hung":    {(*redlocktest.Node).Hang, (*redlocktest.Node).Resume},
		"stopped": {(*redlocktest.Node).Stop, func(n *redlocktest.Node) { _ = n.Restart() }},
		"errors": {
			func(n *redlocktest.Node) { n.SetError("BUSY", "EVALSHA", "EVAL") },
			func(n *redlocktest.Node) { n.SetError("") },
		},
		"mute": {
			func(n *redlocktest.Node) { n.DropReplies(true) },
			func(n *redlocktest.Node) { n.DropReplies(false) },
		},
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job, redlock.WithTTL(time.Minute))
				synctest.Wait()
				each(c, []int{0, 3}, strike.on)
				synctest.Wait()
				require.Zero(t, took(func() { require.NoError(t, k.Release(t.Context())) }))
				if fault != "mute" {
					requireHolders(t, c, k, 2)
				}
				time.Sleep(20 * time.Second)
				each(c, []int{0, 3}, strike.off)
				time.Sleep(3 * time.Second)
				requireFree(t, c, job)
				before := calls(c)
				time.Sleep(2 * time.Minute)
				if fault == "errors" {
					require.Equal(t, before, calls(c), "it was answered, so it is over")
				}
				before = calls(c)
				time.Sleep(time.Hour)
				require.Equal(t, before, calls(c), "it is over in any case")
			})
		})
	}
}

func TestAReleaseWithAMajorityDownSaysSo(t *testing.T) {
	for fault, strike := range map[string]func(*redlocktest.Node){
		"hung": (*redlocktest.Node).Hang, "stopped": (*redlocktest.Node).Stop,
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				synctest.Wait()
				each(c, []int{0, 1, 2}, strike)
				synctest.Wait()
				elapsed := took(func() {
					err := k.Release(t.Context())
					requireOutcome(t, err, redlock.ErrNoQuorum)
					failed := requireQuorumError(t, err)
					require.Equal(t, "release", failed.Op)
					require.Equal(t, 3, failed.Failed)
					require.Len(t, failed.Nodes, 5)
					require.Equal(t, err, k.Release(t.Context()))
				})
				require.LessOrEqual(t, elapsed, redlock.DefaultNodeTimeout)
				requireOutcome(t, k.Err(), redlock.ErrReleased)
				requireHolders(t, c, k, 3)
				time.Sleep(redlock.DefaultTTL)
				requireFree(t, c, job)
			})
		})
	}
}

func TestASecondReleaseReturnsTheFirstResult(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		fine, lost := acquired(t, l, "fine"), acquired(t, l, "lost")
		synctest.Wait()
		each(c, upTo(3), func(n *redlocktest.Node) { n.Delete("lost") })
		require.NoError(t, fine.Release(t.Context()))
		err := lost.Release(t.Context())
		requireOutcome(t, err, redlock.ErrLost)
		_ = requireQuorumError(t, err)
		require.ErrorContains(t, err, "the keys were gone or taken")
		before := commands(c)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			require.NoError(t, fine.Release(t.Context()))
			require.NoError(t, fine.Release(ended), "there is nothing to wait for")
			require.Equal(t, err, lost.Release(t.Context()))
		}
		require.Equal(t, before, commands(c))
	})
}

func TestReleasesAtTheSameTimeAreOne(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		before := calls(c)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(50 * time.Millisecond) })
		elapsed := took(func() {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if err := k.Release(t.Context()); err != nil {
						t.Error(err)
					}
					if !isDone(k.Done()) {
						t.Error("not done")
					}
				})
			}
			wg.Wait()
		})
		require.Equal(t, 50*time.Millisecond, elapsed)
		for i, n := range calls(c) {
			require.Equal(t, before[i]+1, n)
		}
		requireFree(t, c, job)
	})
}

func TestReleaseOfALockThatHasExpiredIsErrLostAndStillDeletes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		time.Sleep(9900 * time.Millisecond) // past the deadline, before the TTL
		requireHolders(t, c, k, 3)
		err := k.Release(t.Context())
		requireOutcome(t, err, redlock.ErrLost)
		requireShape(t, err)
		requireFree(t, c, job)
		requireOutcome(t, k.Err(), redlock.ErrLost)
	})
}

func TestAReleaseDeletesNoKeyOfOthers(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l, other := newLocker(t, c), newLocker(t, c)
		k := acquired(t, l, job)
		time.Sleep(redlock.DefaultTTL)
		k2 := acquired(t, other, job)
		requireHolders(t, c, k2, 5)
		requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
		requireHolders(t, c, k2, 5)
		time.Sleep(5 * time.Second)
		require.NoError(t, k2.Err())
		require.NoError(t, k2.Release(t.Context()))
	})
}

func TestAReleaseOfALockThatNeverReachedAMinorityIsFine(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, []int{0, 1}, (*redlocktest.Node).Stop)
		synctest.Wait()
		k := acquired(t, l, job)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
		time.Sleep(2 * time.Second)
		require.NoError(t, k.Release(t.Context()))
		requireFree(t, c, job)

		// And with one of the others down then: two nodes never had it, one
		// cannot be asked, two have deleted it. Nothing proves a loss.
		each(c, []int{0, 1}, (*redlocktest.Node).Stop)
		synctest.Wait()
		k = acquired(t, l, job)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
		c.Node(2).Stop()
		time.Sleep(2 * time.Second)
		require.NoError(t, k.Release(t.Context()))
	})
}

func TestTheLockEndsBeforeItsKeysGo(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		ctx, cancel := k.Context(t.Context())
		defer cancel()
		synctest.Wait()
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetDelay(100 * time.Millisecond) })
		result := make(chan error, 1)
		go func() { result <- k.Release(t.Context()) }()
		synctest.Wait()
		require.True(t, isDone(k.Done()))
		require.Error(t, ctx.Err())
		require.Zero(t, k.Validity())
		requireOutcome(t, k.Err(), redlock.ErrReleased)
		requireHolders(t, c, k, 3)
		require.NoError(t, <-result)
		requireFree(t, c, job)
	})
}

// The context of a lock is cancelled before anybody else can get it, so a
// guarded function is told in time.
func TestNobodyElseHasTheLockBeforeItsContextEnds(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l, other := newLocker(t, c), newLocker(t, c)
		for range 50 {
			k := acquired(t, l, job)
			ctx, cancel := k.Context(t.Context())
			next := make(chan *redlock.Lock, 1)
			go func() {
				k2, err := other.Acquire(context.WithoutCancel(ctx), job)
				if err != nil {
					t.Error(err)
				} else if ctx.Err() == nil {
					t.Error("the next holder is there, and the last has not been told")
				}
				next <- k2
			}()
			time.Sleep(time.Second)
			require.NoError(t, k.Release(t.Context()))
			require.NoError(t, (<-next).Release(t.Context()))
			cancel()
		}
	})
}

func TestAReleaseIsAnnounced(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l, other := newLocker(t, c), newLocker(t, c)
		k := acquired(t, l, job, redlock.WithTTL(time.Hour))
		time.AfterFunc(20*time.Second, func() { _ = k.Release(t.Context()) })
		elapsed := took(func() {
			_, err := other.Acquire(t.Context(), job, redlock.WithRetryDelay(time.Minute, time.Minute))
			require.NoError(t, err)
		})
		require.GreaterOrEqual(t, elapsed, 20*time.Second)
		require.Less(t, elapsed, 21*time.Second, "not at the poll interval, nor at the end of the TTL")
	})
}

// A node without permission to publish still releases.
func TestARefusedAnnouncementDoesNotKeepTheKey(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetError("NOPERM no channel", "PUBLISH") })
		k := acquired(t, l, job)
		require.NoError(t, k.Release(t.Context()))
		requireFree(t, c, job)
	})
}

// A renewal can be settled, and the next one begun, before it has been sent to
// the last node.
func TestReleaseWaitsForEveryRenewalToBeSent(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		var next atomic.Pointer[chan struct{}] // holds up the next write to node 3
		l := newLocker(t, c, redlock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := c.Dial(ctx, network, addr)
			if err != nil || addr != c.Addrs()[3] {
				return conn, err
			}
			return &heldUpConn{conn, &next}, nil
		}))
		k := acquired(t, l, job, redlock.WithMinHold(time.Second), redlock.WithTTL(time.Minute))
		gate := make(chan struct{})
		next.Store(&gate)
		renewals := make(chan error, 1)
		go func() { renewals <- k.Renew(t.Context()) }()
		synctest.Wait()
		require.Nil(t, next.Load(), "the first renewal is held up before nodes 3 and 4")
		require.NoError(t, k.Renew(t.Context()))

		released := make(chan error, 1)
		go func() { released <- k.Release(t.Context()) }()
		synctest.Wait()
		close(gate)
		require.NoError(t, <-released)
		require.NoError(t, <-renewals)
		synctest.Wait()
		for i := range 5 {
			_, ttl, ok := c.Node(i).Get(job)
			require.True(t, ok)
			require.LessOrEqual(t, ttl, time.Second, "node %d was told to renew after the release", i)
		}
	})
}

type heldUpConn struct {
	net.Conn
	next *atomic.Pointer[chan struct{}]
}

func (c *heldUpConn) Write(p []byte) (int, error) {
	if gate := c.next.Swap(nil); gate != nil {
		<-*gate
	}
	return c.Conn.Write(p)
}

func TestReleaseAfterCloseSaysWhatBecameOfTheLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		released, lost, held := acquired(t, l, "released"), acquired(t, l, "lost", redlock.WithTTL(time.Second)), acquired(t, l, "held")
		require.NoError(t, released.Release(t.Context()))
		require.NoError(t, l.Close())
		time.Sleep(2 * time.Second)
		require.NoError(t, released.Release(t.Context()), "a second call returns the first result")
		requireOutcome(t, lost.Release(t.Context()), redlock.ErrLost)
		requireOutcome(t, held.Release(t.Context()), redlock.ErrClosed)
	})
}
