package redlock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestBreakTakesALockAwayAndAnnouncesIt(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l, other := newLocker(t, c), newLocker(t, c, slowPoll)
		k := acquired(t, l, job, redlock.WithTTL(time.Hour))
		got := wait(t.Context(), other)
		time.Sleep(time.Second)
		s := inspected(t, l)
		require.NoError(t, l.Break(t.Context(), s))
		requireGrant(t, got, time.Now(), soon)
		requireOutcome(t, k.Renew(t.Context()), redlock.ErrLost)

		require.NoError(t, l.Break(t.Context(), s), "what is there now is somebody else's")
		assert.Equal(t, redlock.StateHeld, inspected(t, l).State)
	})
}

func TestBreakDeletesAllTokensThatWereSeenAndNoOthers(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, redlock.WithKeyPrefix("lock:"))
		for i, token := range []string{"a", "a", "b", "b", "c"} {
			c.Node(i).Set("lock:"+job, token, time.Hour)
		}
		s := inspected(t, l)
		require.Equal(t, redlock.StateSplit, s.State)
		c.Node(4).Set("lock:"+job, "d", time.Hour)
		require.NoError(t, l.Break(t.Context(), s))
		assert.Equal(t, map[string]int{"d": 1}, c.Holders("lock:"+job))
	})
}

func TestBreakSaysWhenTooFewNodesConfirm(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		acquired(t, l, job, redlock.WithTTL(time.Hour))
		synctest.Wait()
		s := inspected(t, l)
		each(c, []int{0, 1}, (*redlocktest.Node).Stop)
		require.NoError(t, l.Break(t.Context(), s))

		c.Node(2).Stop()
		failed := requireQuorumError(t, l.Break(t.Context(), s))
		requireOutcome(t, failed, redlock.ErrNoQuorum)
		assert.Equal(t, "break", failed.Op)
		assert.Equal(t, 2, failed.Granted)
		assert.Equal(t, 3, failed.Failed)

		requireOutcome(t, l.Break(t.Context(), nil), redlock.ErrConfig)
		require.NoError(t, l.Close())
		requireOutcome(t, l.Break(t.Context(), s), redlock.ErrClosed)
	})
}

func TestBreakSaysSoWhenItCannotKnowWhatToBreak(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, newLocker(t, c), job, redlock.WithTTL(time.Hour))
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetError("LOADING") })
		require.ErrorIs(t, l.Break(t.Context(), inspected(t, l)), redlock.ErrNoQuorum)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetError("") })

		without := *inspected(t, l)
		without.Nodes = slices.Clone(without.Nodes)
		for i := range without.Nodes {
			without.Nodes[i].Token = "" // as when it was encoded and decoded
		}
		require.ErrorIs(t, l.Break(t.Context(), &without), redlock.ErrConfig)
		require.NoError(t, k.Renew(t.Context()))
	})
}
