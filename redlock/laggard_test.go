package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// split puts another's votes on nodes 0 and 1.
func split(c *redlocktest.Cluster) {
	each(c, []int{0, 1}, func(n *redlocktest.Node) { n.Set(job, "0123456789012345678901.x", time.Hour) })
}

func TestAHungNodeIsNotWaitedForWhereVotesAreSplit(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		distant(c)
		l := newLocker(t, c)
		split(c)
		c.Node(4).Hang()
		start := time.Now()
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrTaken)
		require.LessOrEqual(t, time.Since(start), soon)
		time.Sleep(soon)
		for _, i := range []int{2, 3} {
			_, _, ok := c.Node(i).Get(job)
			require.False(t, ok, "votes are undone")
		}
		c.Node(4).Resume()
		time.Sleep(5 * time.Second)
		_, _, ok := c.Node(4).Get(job)
		require.False(t, ok)
	})
}

func TestANodeThatIsUsuallySlowIsWaitedFor(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		distant(c)
		c.Node(4).SetReplyDelay(200 * time.Millisecond)
		l := newLocker(t, c)
		time.Sleep(time.Second) // its answer has come
		split(c)
		start := time.Now()
		k := acquired(t, l, job)
		require.Equal(t, 200*time.Millisecond, time.Since(start))
		requireHolders(t, c, k, 3)
	})
}

func TestANodeThatNeverAnsweredHasTheNodeTimeout(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		split(c)
		c.Node(4).Hang()
		l := coldLocker(t, c)
		start := time.Now()
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrTaken)
		require.LessOrEqual(t, time.Since(start), redlock.DefaultNodeTimeout+time.Millisecond)
		require.Greater(t, time.Since(start), redlock.DefaultNodeTimeout/2)
	})
}

func TestADueRenewalIsSentAfterTheMachineSlept(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		bent := newBentClock()
		l := newLocker(t, c, redlock.WithClock(bent))
		const ttl = time.Minute
		k := acquired(t, l, job, redlock.WithTTL(ttl), redlock.WithAutoRenew(true))
		time.Sleep(3 * time.Second)
		bent.sleep(ttl / 2)
		require.Less(t, k.Validity(), ttl/2)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Greater(t, k.Validity(), ttl-3*time.Second, "renewed within a second")

		require.True(t, l.Watching())
		release(t, k)
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, l.Watching(), "it ends with the last lock")

		k = acquired(t, l, job, redlock.WithTTL(ttl))
		require.False(t, l.Watching(), "nobody cares")
		done := k.Done()
		time.Sleep(3 * time.Second)
		bent.sleep(ttl)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, isDone(done))
	})
}
