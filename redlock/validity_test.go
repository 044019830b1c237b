package redlock_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestValidityIsTheTTLLessElapsedTimeAndDrift(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		ttl    time.Duration
		factor float64
		delays []time.Duration // of the nodes
		// The quorum's slowest node is what it took.
		took time.Duration
	}{
		{10 * time.Second, 0.01, []time.Duration{0, 0, 0, 0, 0}, 0},
		{10 * time.Second, 0.01, []time.Duration{10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms}, 30 * ms},
		{10 * time.Second, 0.01, []time.Duration{50 * ms, 1 * ms, 40 * ms, 7 * ms, 30 * ms}, 30 * ms},
		{10 * time.Second, 0, []time.Duration{0, 0, 400 * ms, 450 * ms, 460 * ms}, 400 * ms},
		{time.Second, 0.5, []time.Duration{3 * ms, 4 * ms, 5 * ms, 5 * ms, 5 * ms}, 5 * ms},
		{10 * ms, 0.01, []time.Duration{2 * ms, 2 * ms, 2 * ms, 2 * ms, 2 * ms}, 2 * ms},
		{time.Second, 0.25, []time.Duration{9 * ms}, 9 * ms},
		{30 * time.Second, 0.001, []time.Duration{1 * ms, 2 * ms, 3 * ms}, 2 * ms},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, len(test.delays))
				l := newLocker(t, c, redlock.WithDriftFactor(test.factor))
				for i, d := range test.delays {
					// Half of it on the way back: all of it must count.
					c.Node(i).SetDelay(d / 2)
					c.Node(i).SetReplyDelay(d - d/2)
				}
				var k *redlock.Lock
				require.Equal(t, test.took, took(func() { k = acquired(t, l, job, redlock.WithTTL(test.ttl)) }))

				drift := time.Duration(math.Ceil(float64(test.ttl)*test.factor)) + 2*ms
				want := test.ttl - test.took - drift
				require.Equal(t, want, k.Validity())

				time.Sleep(want / 2)
				require.Equal(t, want-want/2, k.Validity(), "it runs down")
				time.Sleep(want - want/2 - 1)
				require.Equal(t, time.Duration(1), k.Validity())
				require.NoError(t, k.Err())
				time.Sleep(time.Nanosecond)
				require.Zero(t, k.Validity())
				requireOutcome(t, k.Err(), redlock.ErrLost)
				time.Sleep(time.Hour)
				require.Zero(t, k.Validity(), "never negative")
			})
		})
	}
}

func TestALockThatOthersMayHaveIsNotValid(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l, other := newLocker(t, c), newLocker(t, c)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(5 * time.Millisecond) })
		k := acquired(t, l, job)
		_, err := other.Acquire(t.Context(), job)
		require.NoError(t, err)
		require.Zero(t, k.Validity())
	})
}

func TestAReplyLaterThanTheTTLIsNoLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, []int{0, 1, 2}, func(n *redlocktest.Node) { n.SetReplyDelay(300 * time.Millisecond) })
		elapsed := took(func() {
			_, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(100*time.Millisecond))
			requireOutcome(t, err, redlock.ErrNoQuorum)
			failed := requireQuorumError(t, err)
			require.Equal(t, 2, failed.Granted)
			require.ErrorContains(t, err, "the TTL was over before a quorum answered")
		})
		require.Equal(t, 97*time.Millisecond, elapsed, "there is no point in waiting any longer")
		time.Sleep(2 * time.Millisecond) // shorter than what is left of the TTL
		requireFree(t, c, job)
	})
}

func TestAReplyTooLateForTheMinimumValidityIsNoLock(t *testing.T) {
	for _, test := range []struct {
		delay time.Duration
		won   bool
	}{{87 * time.Millisecond, true}, {89 * time.Millisecond, false}} {
		t.Run(test.delay.String(), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(test.delay) })
				k, err := l.TryAcquire(t.Context(), job, redlock.WithTTL(time.Second), redlock.WithMinValidity(900*time.Millisecond))
				if test.won {
					require.NoError(t, err)
					require.GreaterOrEqual(t, k.Validity(), 900*time.Millisecond)
					return
				}
				requireOutcome(t, err, redlock.ErrNoQuorum)
				_ = requireQuorumError(t, err)
				requireFree(t, c, job)
			})
		})
	}
}

// The machine sleeps while the deciding vote is on its way, so no timer says
// that the time is up: the clock must be read again when the vote is there.
func TestValidityIsCheckedAgainAfterTheDecidingVote(t *testing.T) {
	for _, test := range []struct {
		slept time.Duration
		min   time.Duration
		won   bool
	}{
		{time.Second, 0, true},
		{9*time.Second + 848*time.Millisecond, 0, false}, // exactly all that is left
		{9*time.Second + 847*time.Millisecond, 0, true},
		{30 * time.Second, 0, false},
		{time.Second, 8848 * time.Millisecond, true},
		{time.Second, 8849 * time.Millisecond, false},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				bent := newBentClock()
				l := newLocker(t, c, redlock.WithClock(bent))
				each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(50 * time.Millisecond) })
				time.AfterFunc(25*time.Millisecond, func() { bent.sleep(test.slept) })
				k, err := l.TryAcquire(t.Context(), job, redlock.WithMinValidity(test.min))
				if test.won {
					require.NoError(t, err)
					require.Equal(t, 9848*time.Millisecond-test.slept, k.Validity())
					return
				}
				requireOutcome(t, err, redlock.ErrNoQuorum)
				_ = requireQuorumError(t, err)
				require.ErrorContains(t, err, "a quorum granted, but too late")
				requireFree(t, c, job)
			})
		})
	}
}

func TestALockEndsWhileTheMachineSleeps(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		bent := newBentClock()
		l := newLocker(t, c, redlock.WithClock(bent))
		k := acquired(t, l, job)
		bent.sleep(time.Minute)
		before := commands(c)
		require.Zero(t, k.Validity())
		requireOutcome(t, k.Renew(t.Context()), redlock.ErrLost)
		requireOutcome(t, k.Err(), redlock.ErrLost)
		require.Equal(t, before, commands(c))
	})
}

func TestEachAttemptCountsItsOwnTime(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		holder := newLocker(t, c)
		acquired(t, holder, job, redlock.WithTTL(20*time.Second))
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetDelay(10 * time.Millisecond) })
		k, err := l.Acquire(t.Context(), job)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second-10*time.Millisecond-102*time.Millisecond, k.Validity(),
			"counted from the attempt that won, not from the first")
	})
}

func TestALateGrantMakesAWonLockMoreRedundant(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetDelay(200 * time.Millisecond) })
		k := acquired(t, l, job)
		requireHolders(t, c, k, 3)
		time.Sleep(200 * time.Millisecond)
		requireHolders(t, c, k, 5)
		before := k.Validity()
		synctest.Wait()
		require.Equal(t, before, k.Validity())
	})
}
