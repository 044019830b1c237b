package redlock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// panicked returns the error that f panics with, or nil.
func panicked(f func()) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = value.(error)
		}
	}()
	f()
	return nil
}

func TestMutexesOfOneNameExcludeEachOther(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		shared := newLocker(t, c).Mutex(job)
		mutexes := []sync.Locker{shared, shared, newLocker(t, c).Mutex(job)}
		var wg sync.WaitGroup
		inside, count := 0, 0
		for i := range 12 {
			wg.Go(func() {
				for range 5 {
					m := mutexes[i%len(mutexes)]
					m.Lock()
					inside++ // which the race detector watches
					if inside != 1 {
						t.Errorf("%d inside", inside)
					}
					time.Sleep(time.Millisecond)
					inside--
					count++
					m.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 60, count)
		requireFree(t, c, job)
	})
}

func TestAMutexIsHeldForLongerThanTheTTL(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		m := newLocker(t, c).Mutex(job, redlock.WithTTL(time.Second))
		m.Lock()
		time.Sleep(time.Minute)
		_, err := newLocker(t, c).TryAcquire(t.Context(), job)
		require.ErrorIs(t, err, redlock.ErrTaken)
		require.NoError(t, panicked(m.Unlock))
	})
}

func TestAMutexWaitsForTheEndOfAnOutage(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		m := newLocker(t, c).Mutex(job)
		each(c, []int{0, 1}, (*redlocktest.Node).Stop)
		time.AfterFunc(time.Minute, func() {
			each(c, []int{0, 1}, func(n *redlocktest.Node) { _ = n.Restart() })
		})
		began := time.Now()
		m.Lock()
		require.InDelta(t, time.Minute.Seconds(), time.Since(began).Seconds(), 5)
		m.Unlock()
	})
}

func TestAMutexPanicsWhereWaitingIsNoUse(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		require.ErrorIs(t, panicked(l.Mutex("").Lock), redlock.ErrConfig)
		require.ErrorIs(t, panicked(l.Mutex(job, redlock.WithTTL(0)).Lock), redlock.ErrConfig)

		each(c, upTo(2), func(n *redlocktest.Node) { n.SetError("READONLY You can't write against a read only replica.") })
		require.ErrorIs(t, panicked(l.Mutex(job).Lock), redlock.ErrNoQuorum)
		each(c, upTo(2), func(n *redlocktest.Node) { n.SetError("") })

		held := l.Mutex(job)
		held.Lock()
		require.NoError(t, l.Close())
		require.ErrorIs(t, panicked(held.Unlock), redlock.ErrClosed)
		require.ErrorIs(t, panicked(l.Mutex(job).Lock), redlock.ErrClosed)
	})
}

func TestUnlockOfAMutexThatWasLostPanics(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		m := newLocker(t, c).Mutex(job, redlock.WithMaxHold(time.Minute))
		m.Lock()
		time.Sleep(time.Minute)
		require.ErrorIs(t, panicked(m.Unlock), redlock.ErrLost)
		require.PanicsWithValue(t, "redlock: unlock of a Mutex that is not locked", m.Unlock)
		m.Lock()
		require.NoError(t, panicked(m.Unlock), "it can be locked again")
	})
}

func TestUnlockOfAMutexThatCannotBeConfirmedIsQuiet(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		m := newLocker(t, c).Mutex(job)
		m.Lock()
		each(c, upTo(3), (*redlocktest.Node).Stop)
		require.NoError(t, panicked(m.Unlock))
	})
}

func TestUnlockingAMutexThatWasLostDoesNotUnlockItForTheNext(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		m := newLocker(t, c).Mutex(job, redlock.WithMaxHold(time.Minute))
		m.Lock()
		time.Sleep(time.Minute) // and it is lost
		var inside atomic.Bool
		go func() {
			m.Lock()
			inside.Store(true)
		}()
		time.Sleep(15 * time.Second)
		require.ErrorIs(t, panicked(m.Unlock), redlock.ErrLost)
		time.Sleep(time.Second)
		require.True(t, inside.Load())
		_, err := newLocker(t, c).TryAcquire(t.Context(), job)
		require.ErrorIs(t, err, redlock.ErrTaken)
		m.Unlock()
	})
}
