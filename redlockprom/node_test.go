package redlockprom_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// work takes and gives back a lock every second, as well as it can.
func work(t *testing.T, locker *redlock.Locker, d time.Duration) {
	t.Helper()
	for range d / time.Second {
		if lock, err := locker.TryAcquire(t.Context(), "work"); err == nil {
			_ = lock.Release(t.Context())
		}
		time.Sleep(time.Second)
	}
}

func TestTheMarginIsHowManyNodesCanStillFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 5)
		c, read := newCollector(t)
		locker := newLocker(t, cluster, c)
		assert.InDelta(t, 5, read.value("redlock_nodes"), 0)
		assert.InDelta(t, 2, read.value("redlock_quorum_margin"), 0)
		for i, margin := range []float64{1, 0, -1} {
			cluster.Node(i).Stop()
			work(t, locker, 5*time.Second)
			assert.InDelta(t, margin, read.value("redlock_quorum_margin"), 0)
			assert.InDelta(t, 0, read.value("redlock_node_up{node="+cluster.Node(i).Addr()+"}"), 0)
			assert.InDelta(t, 1, read.value("redlock_node_up{node="+cluster.Node(4).Addr()+"}"), 0)
		}
		for i := range 3 {
			require.NoError(t, cluster.Node(i).Restart())
		}
		time.Sleep(5 * time.Second) // the Locker finds them by itself
		assert.InDelta(t, 2, read.value("redlock_quorum_margin"), 0)
	})
}

func TestANodeThatHangsIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		c, read := newCollector(t)
		locker := newLocker(t, cluster, c)
		cluster.Node(1).Hang()
		work(t, locker, 5*time.Second)
		assert.InDelta(t, 0, read.value("redlock_node_up{node="+cluster.Node(1).Addr()+"}"), 0)
		assert.InDelta(t, 0, read.value("redlock_quorum_margin"), 0)
	})
}

func TestANodeThatAnswersWithItsOwnErrorIsNotCounted(t *testing.T) {
	for text, want := range map[string]struct {
		kind   string
		margin float64
	}{
		"READONLY You can't write against a read only replica.":                                 {"readonly", 0},
		"OOM command not allowed when used memory > 'maxmemory'.":                               {"oom", 0},
		"ERR Error running script (call to f_1): @user_script:12: -MISCONF Redis is configured": {"misconf", 0},
		"ERR unknown command":         {"answer", 0},
		"WRONGTYPE Operation against": {"wrongtype", 1}, // of that name, not of the node
	} {
		t.Run(want.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := redlocktest.StartPiped(t, 3)
				c, read := newCollector(t)
				locker := newLocker(t, cluster, c)
				for i := range 2 {
					cluster.Node(i).SetDelay(time.Millisecond) // the third is heard first
				}
				node := cluster.Node(2)
				node.SetError(text, "SET", "EVALSHA", "EVAL")
				work(t, locker, 10*time.Second)
				assert.InDelta(t, want.margin, read.value("redlock_quorum_margin"), 0)
				assert.Positive(t, read.value("redlock_node_errors_total{kind="+want.kind+",node="+node.Addr()+"}"))
				assert.InDelta(t, 1, read.value("redlock_node_up{node="+node.Addr()+"}"), 0, "it answers")
				node.SetError("")
				work(t, locker, 10*time.Second)
				assert.InDelta(t, 1, read.value("redlock_quorum_margin"), 0, "it has granted since")
			})
		})
	}
}

// A node that is the slowest is not heard in time to show that it is well again.
func TestAnOldErrorIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		c, read := newCollector(t)
		locker := newLocker(t, cluster, c)
		for i := range 2 {
			cluster.Node(i).SetDelay(time.Millisecond)
		}
		cluster.Node(2).SetError("READONLY", "SET", "EVALSHA", "EVAL")
		work(t, locker, 10*time.Second)
		cluster.Node(2).SetError("")
		cluster.Node(2).SetDelay(50 * time.Millisecond)
		work(t, locker, 4*time.Minute)
		require.InDelta(t, 0, read.value("redlock_quorum_margin"), 0)
		work(t, locker, 2*time.Minute)
		assert.InDelta(t, 1, read.value("redlock_quorum_margin"), 0)
	})
}

func TestAQuarantineEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		time.Sleep(time.Hour)
		c, read := newCollector(t)
		locker := newLocker(t, cluster, c, redlock.WithRestartGuard(time.Minute))
		quarantined := "redlock_node_quarantined{node=" + cluster.Node(0).Addr() + "}"
		require.InDelta(t, 0, read.value(quarantined), 0)
		require.NoError(t, cluster.Node(0).RestartEmpty())
		work(t, locker, 10*time.Second)
		assert.InDelta(t, 1, read.value(quarantined), 0)
		assert.InDelta(t, 0, read.value("redlock_quorum_margin"), 0)
		time.Sleep(time.Minute)
		assert.InDelta(t, 0, read.value(quarantined), 0)
		assert.InDelta(t, 1, read.value("redlock_quorum_margin"), 0)
	})
}

func TestANodeThatWasNeverReachedIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		cluster.Node(2).Stop()
		c, read := newCollector(t)
		newLocker(t, cluster, c)
		time.Sleep(5 * time.Second)
		assert.InDelta(t, 0, read.value("redlock_node_up{node="+cluster.Node(2).Addr()+"}"), 0)
	})
}
