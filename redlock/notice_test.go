package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestALockThatNobodySawBeingAcquiredIsHeldForLongerThanItIsSeen(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithEvents(true), redlock.WithTTL(time.Hour))
		silent := newLocker(t, c, redlock.WithTTL(time.Hour)) // or one node would hear of it
		// told returns what is said of a lock from when it is seen to its end.
		told := func(w *watchLog, k *redlock.Lock) []redlock.Notice {
			time.Sleep(5 * time.Second)
			require.NoError(t, k.Renew(t.Context()))
			time.Sleep(5*time.Second + 500*time.Millisecond) // not while all are listed
			require.NoError(t, k.Release(t.Context()))
			time.Sleep(prompt)
			notices := w.all()
			require.Len(t, notices, 3)
			return notices
		}

		before := acquired(t, l, "before")
		synctest.Wait()
		w := watching(t, newLocker(t, c), "", redlock.WithLookEvery(time.Second))
		for _, n := range told(w, before) {
			assert.True(t, n.Longer, n)
			assert.Contains(t, n.String(), "held for "+n.Held.String()+" or longer")
		}
		for _, n := range told(w, acquired(t, l, "seen")) {
			assert.False(t, n.Longer, n)
			assert.NotContains(t, n.String(), "longer")
		}

		// Two nodes that cannot be listed can still grant.
		each(c, upTo(2), func(n *redlocktest.Node) { n.SetError("NOPERM", "SCAN", "PSUBSCRIBE") })
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"blind"}, w.said())
		unseen := acquired(t, silent, "unseen")
		time.Sleep(time.Minute)
		each(c, upTo(2), func(n *redlocktest.Node) { n.SetError("") })
		time.Sleep(2 * time.Second)
		notices := w.all()
		require.Len(t, notices, 2)
		assert.Equal(t, redlock.NoticeAcquired, notices[0].Kind)
		assert.True(t, notices[0].Longer)
		assert.Equal(t, redlock.NoticeSighted, notices[1].Kind)
		require.NoError(t, unseen.Release(t.Context()))
	})
}

func TestAReleaseThatAListingSeesBeforeItIsHeardOfIsToldOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		w := watching(t, newLocker(t, c), "job*", redlock.WithLookEvery(time.Second))
		const between = 500 * time.Millisecond // two listings
		time.Sleep(between)
		for range 20 {
			k := acquired(t, l, job)
			time.Sleep(time.Second + between)
			require.NoError(t, k.Release(t.Context())) // while all are listed
			time.Sleep(between)
			require.Equal(t, []string{"acquired job", "released job"}, w.said())
		}
	})
}

func TestATroubleThatWasThereBeforeHasLastedForLonger(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		c.Node(0).Set(job, "dead", time.Hour)
		w := watching(t, newLocker(t, c), "", redlock.WithLookEvery(time.Second))
		time.Sleep(10 * time.Second)
		notices := w.all()
		require.Len(t, notices, 1)
		assert.Equal(t, redlock.NoticeLostMajority, notices[0].Kind)
		assert.True(t, notices[0].Longer)
	})
}
