// Package integration_test runs the library against real nodes.
package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// eventually bounds how long nodes and library may take to notice that a
// fault is over, on a busy machine.
const eventually = 20 * time.Second

func newLocker(t *testing.T, c *nodes.Cluster, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	if c.TLSConfig() != nil {
		opts = append(opts, redlock.WithTLSConfig(c.TLSConfig()))
	}
	l, err := redlock.New(c.URLs(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// requireNoKeys waits until no node that can be asked holds a key.
func requireNoKeys(t *testing.T, ns ...*nodes.Node) {
	t.Helper()
	for _, n := range ns {
		require.Eventually(t, func() bool { return len(n.Keys()) == 0 }, eventually, 10*time.Millisecond,
			"%s still holds %v", n, n.Keys())
	}
}

func TestALockIsAcquiredRenewedAndReleasedWhileAMinorityOfNodesIsDead(t *testing.T) {
	for dead := range 3 {
		t.Run(fmt.Sprintf("%d dead", dead), func(t *testing.T) {
			c := nodes.Start(t, 5)
			l := newLocker(t, c)
			for i := range dead {
				c.Node(i).Kill()
			}
			k, err := l.Acquire(t.Context(), "job")
			require.NoError(t, err)
			require.Positive(t, k.Validity())

			_, err = l.TryAcquire(t.Context(), "job")
			require.ErrorIs(t, err, redlock.ErrTaken)

			require.NoError(t, k.Renew(t.Context()))
			require.NoError(t, k.Release(t.Context()))
			requireNoKeys(t, c.Nodes()[dead:]...)
		})
	}
}

func TestWithAMajorityDeadTheErrorCarriesAllAnswersAndTheSurvivorsAreLeftClean(t *testing.T) {
	c := nodes.Start(t, 5)
	l := newLocker(t, c)
	k, err := l.TryAcquire(t.Context(), "warm-up")
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
	for i := range 3 {
		c.Node(i).Kill()
	}

	_, err = l.TryAcquire(t.Context(), "job")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, redlock.ErrTaken)
	var failed *redlock.QuorumError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Nodes, 5)
	for i, n := range failed.Nodes {
		if i < 3 {
			require.Error(t, n.Err, "node %d is dead", i)
		} else {
			require.NoError(t, n.Err, "node %d granted", i)
		}
	}
	assert.Equal(t, 2, failed.Granted)
	assert.Equal(t, 3, failed.Failed)
	requireNoKeys(t, c.Nodes()[3:]...)
}

func TestAMinorityThatHangsCostsNothing(t *testing.T) {
	for hung := range 3 {
		t.Run(fmt.Sprintf("%d hung", hung), func(t *testing.T) {
			c := nodes.Start(t, 5)
			const nodeTimeout = 5 * time.Second // whoever waited for a hung node would show
			l := newLocker(t, c, redlock.WithNodeTimeout(nodeTimeout), redlock.WithTTL(30*time.Second))
			for i := range hung {
				c.Node(i).Pause()
			}
			start := time.Now()
			k, err := l.TryAcquire(t.Context(), "job") // the very first call
			require.NoError(t, err)
			require.NoError(t, k.Renew(t.Context()))
			require.NoError(t, k.Release(t.Context()))
			assert.Less(t, time.Since(start), nodeTimeout/2)
			for i := range hung {
				c.Node(i).Resume()
			}
			requireNoKeys(t, c.Nodes()...)
		})
	}
}

func TestACancelledContextSendsNothing(t *testing.T) {
	c := nodes.Start(t, 5)
	l := newLocker(t, c)
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := l.Acquire(ctx, "job")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	for _, n := range c.Nodes() {
		assert.Empty(t, n.Keys())
	}
}

func TestAnAttemptThatIsCancelledMidwayReturnsAtOnceAndIsUndone(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Pausing)
	l := newLocker(t, c, redlock.WithNodeTimeout(2*time.Second))
	k, err := l.TryAcquire(t.Context(), "warm-up")
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
	for i := range 3 {
		c.Node(i).Pause() // the other two grant
	}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = l.Acquire(ctx, "job")
	took := time.Since(start)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, took, time.Second)

	for i := range 3 {
		c.Node(i).Resume() // and execute what they have in their buffers
	}
	requireNoKeys(t, c.Nodes()...)
}

func TestATimedOutAcquireThatANodeExecutesLaterIsUndone(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Pausing)
	l := newLocker(t, c, redlock.WithNodeTimeout(100*time.Millisecond), redlock.WithTTL(time.Minute))
	k, err := l.Acquire(t.Context(), "warm-up") // connecting may take longer than this node timeout
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
	for i := range 3 {
		c.Node(i).Pause()
	}
	_, err = l.TryAcquire(t.Context(), "job")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	for i := range 3 {
		c.Node(i).Resume()
	}
	requireNoKeys(t, c.Nodes()...)
	// The old bytes come late, if at all: look again, after everything has
	// settled.
	k, err = l.Acquire(t.Context(), "job")
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
	requireNoKeys(t, c.Nodes()...)
}
