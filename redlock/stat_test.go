package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

func TestStatCountsTheRoundTripsOfFencingNumbers(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		require.Zero(t, l.Stat())
		acquired(t, l, "agreed", redlock.WithFencing(true))
		require.Equal(t, redlock.Stat{FencedAtOnce: 1}, l.Stat())

		setCounters(c, "torn", ahead, ahead+1, ahead+2, ahead+3, ahead+4)
		acquired(t, l, "torn", redlock.WithFencing(true))
		require.Equal(t, redlock.Stat{FencedAtOnce: 1, FencedByConfirm: 1}, l.Stat())
	})
}

func TestStatCountsWhatIsStillToBeUndone(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		c.Node(0).Stop()
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, redlock.Stat{Reclaiming: 1}, l.Stat())
		require.NoError(t, c.Node(0).Restart())
		time.Sleep(5 * time.Second)
		require.Zero(t, l.Stat())
	})
}
