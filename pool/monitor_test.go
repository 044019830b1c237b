package pool_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

// A monitor keeps what it is told.
type monitor struct {
	mu      sync.Mutex
	changes []pool.Change
}

func (m *monitor) tell(c pool.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, c)
}

// kinds returns what was told since the last time.
func (m *monitor) kinds() []pool.ChangeKind {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var kinds []pool.ChangeKind
	for _, c := range m.changes {
		kinds = append(kinds, c.Kind)
	}
	m.changes = nil
	return kinds
}

func TestAMonitorIsToldOfEveryTurnOnceAndInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{}
		cluster := redlocktest.StartPiped(t, 1)
		n := cluster.Node(0)
		r := newRig(t, n.Addr(), pool.WithDialer(cluster.Dial), pool.WithMonitor(m.tell))
		ask := func() {
			r.Start(&pool.Call{Script: renew(), To: newBox(), Began: r.clock.Elapsed()})
			synctest.Wait()
		}
		ask()
		require.Equal(t, []pool.ChangeKind{pool.Well}, m.kinds())

		n.DropConnections() // after it served: no reason to suspect it
		ask()
		require.Empty(t, m.kinds())

		for range 3 {
			n.Stop()
			ask()
			time.Sleep(10 * time.Second) // many probes
			require.Equal(t, []pool.ChangeKind{pool.Sick}, m.kinds())
			require.NoError(t, n.Restart())
			time.Sleep(time.Second)
			require.Equal(t, []pool.ChangeKind{pool.Well}, m.kinds())
		}
		n.Hang()
		ask()
		time.Sleep(time.Second)
		require.Equal(t, []pool.ChangeKind{pool.Sick}, m.kinds())
	})
}

func TestAMonitorIsToldOfAQuarantine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{}
		cluster := redlocktest.StartPiped(t, 1)
		r := newRig(t, cluster.Addrs()[0], pool.WithDialer(cluster.Dial), pool.WithMonitor(m.tell), pool.WithRestartGuard(time.Minute))
		r.Start(&pool.Call{Script: renew(), To: newBox(), Began: r.clock.Elapsed()})
		assert.Equal(t, []pool.ChangeKind{pool.Well, pool.Quarantined}, m.kinds())
	})
}
