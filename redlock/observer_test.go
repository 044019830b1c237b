package redlock_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// A recorder is an observer that keeps what it is told.
type recorder struct {
	before func(redlock.Event) // called first, if set

	mu     sync.Mutex
	events []redlock.Event
}

func (r *recorder) Observe(e redlock.Event) {
	if r.before != nil {
		r.before(e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// take returns the events since the last time.
func (r *recorder) take() []redlock.Event {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// kinds returns them by type.
func kinds(events []redlock.Event) []string {
	var names []string
	for _, e := range events {
		names = append(names, strings.TrimPrefix(fmt.Sprintf("%T", e), "redlock."))
	}
	return names
}

// event returns the first event of a type.
func event[E redlock.Event](t *testing.T, events []redlock.Event) E {
	t.Helper()
	for _, e := range events {
		if e, ok := e.(E); ok {
			return e
		}
	}
	require.Fail(t, "no such event", "%T among %v", *new(E), kinds(events))
	panic("unreachable")
}

// observed makes a Locker with a recorder that has forgotten the beginning.
func observed(t *testing.T, c *redlocktest.Cluster, opts ...redlock.Option) (*redlock.Locker, *recorder) {
	t.Helper()
	r := &recorder{}
	l := newLocker(t, c, append([]redlock.Option{redlock.WithObserver(r)}, opts...)...)
	_ = r.take()
	return l, r
}

func TestTheObserverIsToldTheLifeOfALock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l, r := observed(t, c)
		c.Node(0).SetDelay(2 * time.Millisecond)
		c.Node(1).SetDelay(5 * time.Millisecond)
		c.Node(2).SetDelay(time.Second)
		k := acquired(t, l, job, redlock.WithTTL(time.Minute), redlock.WithFencing(true), redlock.WithDriftFactor(0))
		events := r.take()
		require.Equal(t, []string{"Attempted", "Acquired"}, kinds(events)[:2])
		attempt := event[redlock.Attempted](t, events)
		require.NoError(t, attempt.Err)
		assert.Equal(t, []string{job}, attempt.Names)
		assert.GreaterOrEqual(t, attempt.Took, 5*time.Millisecond)
		assert.Equal(t, []redlock.NodeVote{
			{Node: c.Addrs()[0], Vote: redlock.VoteGranted, Took: 2 * time.Millisecond},
			{Node: c.Addrs()[1], Vote: redlock.VoteGranted, Took: 5 * time.Millisecond},
		}, attempt.Votes[:2])
		assert.Equal(t, redlock.VotePending, attempt.Votes[2].Vote)
		acquired := event[redlock.Acquired](t, events)
		assert.Equal(t, attempt.Took, acquired.Waited)
		assert.Equal(t, k.Validity(), acquired.Validity)
		assert.Equal(t, k.FencingToken(), acquired.FencingToken)

		time.Sleep(10 * time.Second)
		c.Node(2).SetDelay(0)
		time.Sleep(time.Second)
		_ = r.take()
		require.NoError(t, k.Renew(t.Context()))
		events = r.take()
		require.Equal(t, []string{"Renewed"}, kinds(events))
		renewed := event[redlock.Renewed](t, events)
		require.NoError(t, renewed.Err)
		assert.Equal(t, k.Validity(), renewed.Validity)

		time.Sleep(10 * time.Second)
		left := k.Validity()
		require.NoError(t, k.Release(t.Context()))
		events = r.take()
		require.Equal(t, []string{"Released"}, kinds(events))
		released := event[redlock.Released](t, events)
		require.NoError(t, released.Err)
		assert.Equal(t, left, released.Validity)
		assert.InDelta(t, 21*time.Second, released.Held, float64(time.Second))
		require.NoError(t, k.Release(t.Context()))
		assert.Empty(t, r.take(), "once")
	})
}

func TestTheObserverIsToldWhyALockWasNotAcquired(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l, r := observed(t, c)
		other := acquired(t, newLocker(t, c), job)
		synctest.Wait()
		c.Node(1).SetError("BUSY Redis is busy")
		_, err := l.TryAcquire(t.Context(), job)
		events := r.take()
		require.Equal(t, []string{"Attempted", "AcquireFailed"}, kinds(events)[:2])
		assert.Equal(t, err, event[redlock.AcquireFailed](t, events).Err)
		attempt := event[redlock.Attempted](t, events)
		require.ErrorIs(t, attempt.Err, redlock.ErrTaken)
		votes := make(map[redlock.Vote]int)
		for _, v := range attempt.Votes {
			votes[v.Vote]++
			require.Error(t, v.Err)
		}
		assert.GreaterOrEqual(t, votes[redlock.VoteRefused], 2, "or a failure decided")
		_, err = l.Resume(t.Context(), []string{job}, "not its token")
		require.ErrorIs(t, err, redlock.ErrLost)
		assert.Equal(t, []string{"AcquireFailed"}, kinds(r.take()), "it was never ours to be lost")
		for _, e := range events {
			assert.NotContains(t, fmt.Sprintf("%+v", e), other.Token())
		}
	})
}

func TestTheObserverIsToldHowALockWasLost(t *testing.T) {
	for reason, lose := range map[redlock.LossReason]func(*testing.T, *redlocktest.Cluster, *redlock.Lock){
		redlock.LossExpired: func(*testing.T, *redlocktest.Cluster, *redlock.Lock) { time.Sleep(time.Hour) },
		redlock.LossMaxHold: func(t *testing.T, _ *redlocktest.Cluster, k *redlock.Lock) {
			for range 4 {
				time.Sleep(10 * time.Second)
				_ = k.Renew(t.Context())
			}
		},
		redlock.LossDeleted: func(t *testing.T, c *redlocktest.Cluster, k *redlock.Lock) {
			each(c, upTo(2), func(n *redlocktest.Node) { n.Delete(job) })
			require.Error(t, k.Renew(t.Context()))
		},
		redlock.LossStolen: func(t *testing.T, c *redlocktest.Cluster, k *redlock.Lock) {
			each(c, upTo(2), func(n *redlocktest.Node) { n.Set(job, "other", time.Minute) })
			require.Error(t, k.Renew(t.Context()))
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l, r := observed(t, c)
				k := acquired(t, l, job, redlock.WithTTL(20*time.Second), redlock.WithMaxHold(30*time.Second))
				_ = k.Done() // somebody watches
				synctest.Wait()
				lose(t, c, k)
				lost := event[redlock.Lost](t, r.take())
				assert.Equal(t, reason, lost.Reason)
				assert.Equal(t, k.Err(), lost.Err)
				require.ErrorIs(t, k.Release(t.Context()), redlock.ErrLost)
				events := r.take()
				require.Equal(t, []string{"Released"}, kinds(events))
				require.ErrorIs(t, event[redlock.Released](t, events).Err, redlock.ErrLost)
				assert.Zero(t, event[redlock.Released](t, events).Validity)
			})
		})
	}
}

// A renewal has come to its end, and the observer is being told, when the lock
// is released.
func TestReleaseWaitsForWhatTheObserverIsBeingTold(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l, r := observed(t, c)
		k := acquired(t, l, job)
		synctest.Wait()
		telling := make(chan struct{})
		r.before = func(e redlock.Event) {
			if _, ok := e.(redlock.Renewed); ok {
				close(telling)
				time.Sleep(time.Second)
			}
		}
		go func() { _ = k.Renew(t.Context()) }()
		<-telling
		require.NoError(t, k.Release(t.Context()))
		r.mu.Lock()
		assert.Contains(t, kinds(r.events), "Renewed")
		r.mu.Unlock()
		_ = r.take()
		time.Sleep(time.Minute)
		for _, e := range r.take() { // the observer was so slow that a node is taken for sick
			assert.NotContains(t, []string{"Renewed", "Lost", "Released"}, kinds([]redlock.Event{e})[0])
		}
	})
}

func TestNothingIsToldAfterClose(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l, r := observed(t, c, redlock.WithAutoRenew(true))
		k := acquired(t, l, job)
		_ = k.Done()
		c.Node(0).Stop()
		time.Sleep(time.Second)
		require.NoError(t, l.Close())
		_ = r.take()
		time.Sleep(time.Minute)
		require.ErrorIs(t, k.Err(), redlock.ErrLost)
		assert.Empty(t, r.take())
	})
}

func TestTheObserverIsToldOfNodesInOrder(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		r := &recorder{}
		l := newLocker(t, c, redlock.WithObserver(r))
		for range 3 {
			require.IsType(t, redlock.NodeWell{}, lastOf(r.take(), c.Addrs()[0]))
			c.Node(0).Stop()
			time.Sleep(100 * time.Millisecond)
			warm(t, l)
			sick, ok := lastOf(r.take(), c.Addrs()[0]).(redlock.NodeSick)
			require.True(t, ok)
			require.Error(t, sick.Err)
			require.NoError(t, c.Node(0).Restart())
			time.Sleep(2 * time.Second)
		}
	})
}

// lastOf returns the last event about a node being sick or well.
func lastOf(events []redlock.Event, node string) redlock.Event {
	var found redlock.Event
	for _, e := range events {
		switch e := e.(type) {
		case redlock.NodeWell:
			if e.Node == node {
				found = e
			}
		case redlock.NodeSick:
			if e.Node == node {
				found = e
			}
		}
	}
	return found
}

func TestTheObserverIsToldOfQuarantineAndOfWhatWasReclaimed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		time.Sleep(time.Hour)
		l, r := observed(t, c, redlock.WithRestartGuard(time.Minute))
		require.NoError(t, c.Node(0).RestartEmpty())
		time.Sleep(time.Second)
		warm(t, l)
		quarantine := event[redlock.NodeQuarantined](t, r.take())
		assert.Equal(t, c.Addrs()[0], quarantine.Node)
		assert.InDelta(t, time.Minute, quarantine.For, float64(3*time.Second))

		time.Sleep(2 * time.Minute)
		k := acquired(t, l, job, redlock.WithTTL(time.Minute))
		synctest.Wait()
		c.Node(0).Stop()
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, c.Node(0).Restart())
		time.Sleep(5 * time.Second)
		reclaimed := event[redlock.Reclaimed](t, r.take())
		assert.Equal(t, c.Addrs()[0], reclaimed.Node)
		assert.True(t, reclaimed.Undone)
		assert.Positive(t, reclaimed.Took)
	})
}

func TestALossIsToldWhenItHappensAndSaysForHowLongTheLockWasHeld(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l, seen := observed(t, newCluster(t, 3))
		acquired(t, l, job, redlock.WithTTL(time.Second))
		time.Sleep(time.Minute)
		lost := event[redlock.Lost](t, seen.take())
		require.LessOrEqual(t, lost.Held, time.Second)
		require.Greater(t, lost.Held, 900*time.Millisecond)
	})
}

// explosive panics when a lock is acquired.
type explosive struct{}

func (explosive) Observe(e redlock.Event) {
	if _, ok := e.(redlock.Acquired); ok {
		panic("observer")
	}
}

func TestAnObserverThatPanicsLeavesNoLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := coldLocker(t, c, redlock.WithObserver(explosive{}))
		require.PanicsWithValue(t, "observer", func() {
			_, _ = l.TryAcquire(t.Context(), job, redlock.WithAutoRenew(true))
		})
		time.Sleep(time.Second)
		requireFree(t, c, job)
	})
}

func TestNamesOfNumbersThatMeanNothingAreNumbers(t *testing.T) {
	t.Parallel()
	for _, s := range []fmt.Stringer{redlock.Vote(99), redlock.State(99), redlock.Level(99), redlock.NoticeKind(99)} {
		require.Equal(t, "99", s.String())
	}
	text, err := json.Marshal([]any{redlock.VoteGranted, redlock.StateHeld, redlock.LevelOK, redlock.NoticeFound})
	require.NoError(t, err)
	require.Equal(t, `["granted","held","ok","found"]`, string(text))
}
