package redlock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// misdialled makes the third address of a cluster lead to the first node while
// it is wrong.
type misdialled struct {
	*redlocktest.Cluster
	wrong atomic.Bool
}

func (m *misdialled) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if m.wrong.Load() && addr == m.Addrs()[2] {
		addr = m.Addrs()[0]
	}
	return m.Cluster.Dial(ctx, network, addr)
}

func TestOneServerUnderTwoAddressesIsRefusedAtFirstUse(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := &misdialled{Cluster: newCluster(t, 3)}
		c.wrong.Store(true)
		l := coldLocker(t, c.Cluster, redlock.WithDialer(c.Dial))
		_, err := l.TryAcquire(t.Context(), job)
		if err == nil { // a quorum was there before the third connection
			synctest.Wait()
			_, err = l.TryAcquire(t.Context(), "another")
		}
		requireOutcome(t, err, redlock.ErrConfig)
		require.ErrorContains(t, err, c.Addrs()[0])
		require.ErrorContains(t, err, c.Addrs()[2])
		_, err = l.Acquire(t.Context(), "another")
		requireOutcome(t, err, redlock.ErrConfig)
		_, err = l.Resume(t.Context(), []string{"another"}, "token")
		requireOutcome(t, err, redlock.ErrConfig)
		requireFree(t, c.Cluster, "another")

		c.wrong.Store(false)
		c.Node(0).DropConnections()
		synctest.Wait()
		_ = inspected(t, l) // looking is allowed, and connects
		synctest.Wait()
		acquired(t, l, "another")
	})
}

// INFO is often denied, and then nothing can be found out.
func TestWithoutRunIDsNothingIsRefused(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := &misdialled{Cluster: newCluster(t, 3)}
		c.wrong.Store(true)
		each(c.Cluster, upTo(3), func(n *redlocktest.Node) { n.SetError("NOPERM", "INFO") })
		l := coldLocker(t, c.Cluster, redlock.WithDialer(c.Dial))
		acquired(t, l, job)
		synctest.Wait()
		acquired(t, l, "another")
	})
}

// moved is a cluster whose first server has got the address of the last, which
// is gone; nobody has the first address then.
type moved struct {
	*redlocktest.Cluster
	on atomic.Bool
}

func (m *moved) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if m.on.Load() {
		switch addr {
		case m.Addrs()[0]:
			return nil, errors.New("connection refused")
		case m.Addrs()[4]:
			addr = m.Addrs()[0]
		}
	}
	return m.Cluster.Dial(ctx, network, addr)
}

func TestAServerThatMovedToAnotherAddressIsNotItsOwnTwin(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := &moved{Cluster: newCluster(t, 5)}
		l := newLocker(t, c.Cluster, redlock.WithDialer(c.Dial))
		c.on.Store(true)
		c.Node(0).DropConnections()
		c.Node(4).DropConnections()
		time.Sleep(time.Hour)
		acquired(t, l, job)
	})
}
