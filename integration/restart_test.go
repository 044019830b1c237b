package integration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// heldByThree makes a lock that three of five nodes granted: the two others
// were down.
func heldByThree(t *testing.T, c *nodes.Cluster, l *redlock.Locker, ttl time.Duration) *redlock.Lock {
	t.Helper()
	c.Node(3).Kill()
	c.Node(4).Kill()
	k, err := l.Acquire(t.Context(), "job", redlock.WithTTL(ttl))
	require.NoError(t, err)
	c.Node(3).Start()
	c.Node(4).Start()
	return k
}

// The known weakness of the algorithm on nodes that forget, and the reason for
// the guard: if this test fails because the second client gets nothing, the one
// below proves nothing.
func TestWithoutTheGuardANodeThatForgotGrantsTheLockAgain(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Forgetting, nodes.Killing)
	first := heldByThree(t, c, newLocker(t, c), time.Minute)
	c.Node(0).RestartEmpty()

	second, err := newLocker(t, c).Acquire(t.Context(), "job", redlock.WithTTL(time.Minute))
	require.NoError(t, err)
	assert.Positive(t, first.Validity(), "two clients hold the lock at once")
	assert.Positive(t, second.Validity())
}

func TestWithTheGuardANodeThatForgotGrantsNothingUntilTheLockIsOver(t *testing.T) {
	const ttl = 4 * time.Second
	c := nodes.Start(t, 5)
	c.Require(nodes.Forgetting, nodes.Killing)
	// The nodes have just started, and must be let in first.
	guarded := newLocker(t, c, redlock.WithRestartGuard(ttl), redlock.WithTTL(ttl), redlock.WithOutageTolerance(time.Minute))
	warm, err := guarded.Acquire(t.Context(), "warm-up")
	require.NoError(t, err)
	require.NoError(t, warm.Release(t.Context()))

	first := heldByThree(t, c, guarded, ttl)
	c.Node(0).RestartEmpty()

	rival := newLocker(t, c, redlock.WithRestartGuard(ttl), redlock.WithTTL(ttl), redlock.WithOutageTolerance(time.Minute))
	second, err := rival.Acquire(t.Context(), "job")
	require.NoError(t, err)
	assert.Zero(t, first.Validity(), "the first lock was still valid when the second was granted")
	require.ErrorIs(t, first.Release(t.Context()), redlock.ErrLost)
	require.NoError(t, second.Release(t.Context()))
}

func TestAGuardedLockIsRenewedAndReleasedOnNodesThatRestarted(t *testing.T) {
	const ttl = 20 * time.Second // far more than it takes to restart five nodes
	c := nodes.Start(t, 5, nodes.WithAOF())
	l := newLocker(t, c, redlock.WithRestartGuard(ttl), redlock.WithTTL(ttl), redlock.WithOutageTolerance(time.Minute))
	k, err := l.Acquire(t.Context(), "job")
	require.NoError(t, err)
	for _, n := range c.Nodes() {
		n.Stop()
		n.Start()
	}
	require.Eventually(t, func() bool { return k.Renew(t.Context()) == nil }, eventually, 20*time.Millisecond)
	require.NoError(t, k.Release(t.Context()))
	requireNoKeys(t, c.Nodes()...)
}

func TestALockOutlivesTheRestartOfEveryNodeOneAfterAnother(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Forgetting)
	l := newLocker(t, c)
	k, err := l.Acquire(t.Context(), "job", redlock.WithTTL(time.Minute))
	require.NoError(t, err)
	for i, n := range c.Nodes() { // a node that dies with the acquire in flight stays in doubt
		require.Eventually(t, func() bool { return len(n.Keys()) > 0 }, eventually, 10*time.Millisecond, "node %d never granted", i)
	}
	for i, n := range c.Nodes() {
		n.RestartEmpty()
		require.Eventually(t, func() bool {
			return k.Renew(t.Context()) == nil && len(n.Keys()) > 0
		}, eventually, 20*time.Millisecond, "node %d was not filled again", i)
	}
	require.NoError(t, k.Release(t.Context()))
	requireNoKeys(t, c.Nodes()...)
}

func TestALockOfThreeNodesIsLostWhenTwoOfThemForgetBeforeARenewal(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Forgetting, nodes.Killing)
	l := newLocker(t, c)
	k := heldByThree(t, c, l, time.Minute)
	c.Node(0).RestartEmpty()
	c.Node(1).RestartEmpty()
	var err error
	require.Eventually(t, func() bool {
		err = k.Renew(t.Context())
		return k.Err() != nil
	}, eventually, 20*time.Millisecond)
	require.ErrorIs(t, err, redlock.ErrLost)
	require.ErrorContains(t, err, "deleted")
	require.ErrorIs(t, k.Err(), redlock.ErrLost)
}
