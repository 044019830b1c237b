package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
)

func TestNodesShowWhichOfThemAreUp(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := coldLocker(t, c)
		for _, n := range l.Nodes() {
			assert.Equal(t, pool.Idle, n.State)
		}
		c.Node(1).Stop()
		acquired(t, l, job)
		time.Sleep(time.Second)
		nodes := l.Nodes()
		require.Len(t, nodes, 3)
		for i, n := range nodes {
			assert.Equal(t, c.Addrs()[i], n.Addr)
			assert.Equal(t, i == 1, n.State == pool.Suspect)
			assert.Equal(t, i == 1, n.Cause != nil)
		}
	})
}
