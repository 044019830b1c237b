package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	lua "github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// What a node may do to an acquire that is under way, and how it gets well.
var sicknesses = map[string]struct{ on, off func(*redlocktest.Node) }{
	"executed and not answered": {
		func(n *redlocktest.Node) { n.DropReplies(true) },
		func(n *redlocktest.Node) { n.DropReplies(false) },
	},
	"executed after it resumed": {(*redlocktest.Node).Hang, (*redlocktest.Node).Resume},
	"executed, reset before it answered": {
		func(n *redlocktest.Node) {
			n.SetReplyDelay(time.Second)
			time.AfterFunc(20*time.Millisecond, n.DropConnections)
		},
		func(n *redlocktest.Node) { n.SetReplyDelay(0) },
	},
	"reset before it was executed": {
		func(n *redlocktest.Node) {
			n.SetDelay(time.Second)
			time.AfterFunc(20*time.Millisecond, n.DropConnections)
		},
		func(n *redlocktest.Node) { n.SetDelay(0) },
	},
	"killed with its data kept": {
		func(n *redlocktest.Node) {
			n.SetReplyDelay(time.Second)
			time.AfterFunc(20*time.Millisecond, n.Stop)
		},
		func(n *redlocktest.Node) { n.SetReplyDelay(0); _ = n.Restart() },
	},
	"executed long after it was given up": {
		func(n *redlocktest.Node) { n.SetDelay(1700 * time.Millisecond) },
		func(n *redlocktest.Node) { n.SetDelay(0) },
	},
	"answered long after it was given up": {
		func(n *redlocktest.Node) { n.SetReplyDelay(1700 * time.Millisecond) },
		func(n *redlocktest.Node) { n.SetReplyDelay(0) },
	},
}

func TestAVoteOfUnknownOutcomeIsUndone(t *testing.T) {
	for sickness, strike := range sicknesses {
		for _, illness := range []time.Duration{700 * time.Millisecond, 40 * time.Second} {
			t.Run(fmt.Sprintf("%s, for %v", sickness, illness), func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 5)
					l := newLocker(t, c)
					sick := []int{0, 1, 2}
					each(c, sick, strike.on)
					_, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(time.Minute))
					requireOutcome(t, err, redlock.ErrNoQuorum)
					time.Sleep(illness)
					each(c, sick, strike.off)
					// Well within the TTL, and with other commands than the ones
					// that were under way.
					time.Sleep(5 * time.Second)
					requireFree(t, c, job)
					acquired(t, l, "another")
				})
			})
		}
	}
}

// The hung node resumes when the Locker has a new connection to it already,
// and executes what came over the old one last of all.
func TestOldBytesThatAreExecutedAfterTheReleaseAreUndone(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		node := c.Node(0)
		node.SetDelay(3 * time.Second) // for what is on its way now
		_, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(time.Minute))
		requireOutcome(t, err, redlock.ErrNoQuorum)
		node.SetDelay(0)
		time.Sleep(2 * time.Second)
		require.Positive(t, node.CountOf("EVALSHA"), "it has been released over a new connection")
		requireFree(t, c, job)
		time.Sleep(520 * time.Millisecond) // it is granted
		time.Sleep(2 * time.Second)        // the release is repeated
		requireFree(t, c, job)
	})
}

// A node that nobody reached for longer than the TTL may still have the command:
// it has the length of the TTL from its first answer on.
func TestOldBytesAreUndoneOnANodeThatWasAwayForLongerThanTheTTL(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		tap := newWiretap(c)
		l := newLocker(t, c, redlock.WithDialer(tap.Dial))
		node := c.Node(0)
		node.SetDelay(20 * time.Second) // for what is on its way now
		tap.onDial(func(string) error { return errTest })
		_, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(10*time.Second))
		requireOutcome(t, err, redlock.ErrNoQuorum)
		node.SetDelay(0)
		time.Sleep(12 * time.Second)
		before := calls(c)[0]
		tap.onDial(func(string) error { return nil })
		time.Sleep(3 * time.Second)
		require.Greater(t, calls(c)[0], before, "it has been released over a new connection")
		time.Sleep(8 * time.Second) // it was granted, and released again
		requireFree(t, c, job)
	})
}

func TestALateGrantOfAFailedAttemptIsUndone(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		before := foreign(c, 0, 1, 2)
		each(c, []int{3, 4}, func(n *redlocktest.Node) { n.SetDelay(200 * time.Millisecond) })
		require.Zero(t, took(func() {
			_, err := l.TryAcquire(t.Context(), job)
			requireOutcome(t, err, redlock.ErrTaken)
		}))
		time.Sleep(400 * time.Millisecond)
		require.Equal(t, before, c.Holders(job))
	})
}

// A command that waits for a connection is not sent any more once the attempt
// has failed.
func TestAnAcquireThatIsNotWantedAnyMoreIsNotSent(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		tap := newWiretap(c)
		l := newLocker(t, c, redlock.WithDialer(tap.Dial))
		foreign(c, 0, 1)
		tap.onDial(func(string) error { time.Sleep(100 * time.Millisecond); return nil })
		c.Node(2).DropConnections()
		synctest.Wait()
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrTaken)
		before := calls(c)[2]
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, before+1, calls(c)[2], "the release, and nothing else")
		require.Len(t, c.Holders(job), 2)
	})
}

func TestAMajorityThatComesBackFindsNothingLeft(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, upTo(5), (*redlocktest.Node).Hang)
		for range 20 {
			_, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(time.Hour))
			requireOutcome(t, err, redlock.ErrNoQuorum)
		}
		each(c, upTo(5), (*redlocktest.Node).Resume)
		time.Sleep(3 * time.Second)
		requireFree(t, c, job)
		acquired(t, l, job)
	})
}

// For a node that never comes back, the undoing ends.
func TestUndoingIsBoundedInTime(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(2), (*redlocktest.Node).Hang)
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
		time.Sleep(20 * time.Minute)
		each(c, upTo(2), (*redlocktest.Node).Resume)
		time.Sleep(10 * time.Second) // the probe
		before := calls(c)
		time.Sleep(time.Hour)
		require.Equal(t, before, calls(c), "nothing more is tried")
	})
}

// A node that is well, and denies having the key, is not asked for ever.
func TestUndoingOfADoubtfulVoteEndsWithTheTTL(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		node := c.Node(0)
		node.SetDelay(time.Second)
		time.AfterFunc(100*time.Millisecond, node.DropConnections)
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
		node.SetDelay(0)
		time.Sleep(5 * time.Second)
		before := calls(c)
		time.Sleep(4 * time.Second)
		require.Greater(t, calls(c)[0], before[0], "the old command may still come")
		time.Sleep(5 * time.Second)
		before = calls(c)
		time.Sleep(time.Hour)
		require.Equal(t, before, calls(c), "and now not any more")
	})
}

func TestCancelledAttemptsLeaveNothingWhateverTheNodesDo(t *testing.T) {
	for sickness, strike := range sicknesses {
		t.Run(sickness, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				each(c, upTo(3), strike.on)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := l.Acquire(ctx, job, redlock.WithTTL(time.Minute))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(3 * time.Second)
				each(c, upTo(3), strike.off)
				time.Sleep(5 * time.Second)
				requireFree(t, c, job)
			})
		})
	}
}

// A script cache that was flushed between two commands must not let an acquire
// that is sent again overtake its release.
func TestAFlushedScriptCacheLeavesNoKey(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		for i := range 100 {
			each(c, upTo(3), (*redlocktest.Node).FlushScripts)
			if i%2 == 0 {
				each(c, upTo(2), func(n *redlocktest.Node) { n.Set(job, "other", time.Hour) })
				_, err := l.TryAcquire(t.Context(), job)
				requireOutcome(t, err, redlock.ErrTaken)
				each(c, upTo(2), func(n *redlocktest.Node) { n.Delete(job) })
			} else {
				k := acquired(t, l, job)
				each(c, upTo(3), (*redlocktest.Node).FlushScripts)
				require.NoError(t, k.Release(t.Context()))
			}
			requireFree(t, c, job)
		}
	})
}

// forgetAcquire makes a node forget all scripts but that of a release, as when
// another client loaded that one since the flush.
func forgetAcquire(t *testing.T, c *redlocktest.Cluster, i int) {
	t.Helper()
	c.Node(i).FlushScripts()
	conn, err := redis.DialContext(t.Context(), "tcp", c.Node(i).Addr(), redis.DialContextFunc(c.Dial))
	require.NoError(t, err)
	_, err = conn.Do("SCRIPT", "LOAD", lua.Release([]string{job}, "token", true).Script.Source())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// The acquire would have to be sent again, with its source; but the release
// that was sent behind it has been executed already.
func TestAnAcquireIsNotSentAgainAfterItsRelease(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker){
		"that undoes a failed attempt": func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			t.Helper()
			foreign(c, 0, 1)
			_, err := l.TryAcquire(t.Context(), job)
			requireOutcome(t, err, redlock.ErrTaken)
		},
		"by the holder": func(t *testing.T, _ *redlocktest.Cluster, l *redlock.Locker) {
			t.Helper()
			require.NoError(t, acquired(t, l, job).Release(t.Context()))
		},
		"by the holder, after a refill": func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) {
			t.Helper()
			c.Node(2).SetReplyDelay(0)
			warm(t, l)
			k := acquired(t, l, job)
			synctest.Wait()
			c.Node(2).Delete(job)
			c.Node(2).SetReplyDelay(50 * time.Millisecond)
			require.NoError(t, k.Renew(t.Context()))
			time.Sleep(40 * time.Millisecond)
			forgetAcquire(t, c, 2)
			time.Sleep(20 * time.Millisecond) // the refill is sent
			require.NoError(t, k.Release(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				forgetAcquire(t, c, 2)
				c.Node(2).SetReplyDelay(100 * time.Millisecond)
				use(t, c, l)
				time.Sleep(time.Second)
				_, _, ok := c.Node(2).Get(job)
				require.False(t, ok)
			})
		})
	}
}
