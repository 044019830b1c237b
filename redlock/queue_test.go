package redlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

func TestCallersOfOneProcessGetTheLockInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		k := held(t, c)
		l := newLocker(t, c)
		distant(c)
		const waiters = 30
		order := make(chan int, waiters)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				k, err := l.Acquire(t.Context(), job)
				if assert.NoError(t, err) {
					order <- i
					time.Sleep(rand.N(5 * roundTrip))
					assert.NoError(t, k.Release(t.Context()))
				}
			})
			synctest.Wait() // it has joined
		}
		since := release(t, k)
		wg.Wait()
		close(order)
		require.LessOrEqual(t, time.Since(since), waiters*soon)
		for i := range waiters {
			require.Equal(t, i, <-order)
		}
		require.Zero(t, l.Lines())
	})
}

func TestAQueuedCallerThatGivesUpPassesTheCallOn(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		holder, l := newLocker(t, c), newLocker(t, c, slowPoll)
		rounds := 100
		if testing.Short() {
			rounds = 25
		}
		passed := 0
		for range rounds {
			k := acquired(t, holder, job, redlock.WithTTL(time.Hour))
			head, giveUp := context.WithCancel(t.Context())
			first := wait(head, l)
			time.Sleep(10 * roundTrip)
			ctx, cancel := context.WithCancel(t.Context())
			var fickle []<-chan grant
			for range 3 {
				fickle = append(fickle, wait(ctx, l))
				synctest.Wait()
			}
			lastOne := wait(t.Context(), l)
			synctest.Wait()
			require.Equal(t, 4, l.Behind())
			// The head leaves and those behind it give up, all at once.
			var wg sync.WaitGroup
			wg.Go(giveUp)
			wg.Go(cancel)
			wg.Wait()
			synctest.Wait()
			require.Zero(t, l.Behind(), "their places are free, and the last is called")
			require.Error(t, (<-first).err)
			for _, got := range fickle {
				requireEnded(t, (<-got).err, ctx)
				passed++
			}
			release(t, requireGrant(t, lastOne, release(t, k), soon))
		}
		require.Zero(t, l.Lines())
		require.Equal(t, 3*rounds, passed)
	})
}

func TestNoWaiterStarves(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		const lockers, waiters = 4, 3
		c := newCluster(t, 3)
		distant(c)
		d := 2 * time.Second
		if testing.Short() {
			d = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		shares := make([]int, lockers*waiters)
		var wg sync.WaitGroup
		for i := range lockers {
			l := newLocker(t, c)
			for j := range waiters {
				wg.Go(func() {
					for {
						k, err := l.Acquire(ctx, job)
						if err != nil {
							return
						}
						shares[i*waiters+j]++
						time.Sleep(5 * roundTrip)
						assert.NoError(t, k.Release(context.WithoutCancel(ctx)))
					}
				})
			}
		}
		wg.Wait()
		t.Log(shares)
		require.Positive(t, slices.Min(shares))
		total := sum(shares)
		require.LessOrEqual(t, slices.Max(shares), total/2)
		require.GreaterOrEqual(t, total, int(d/(5*soon)), "the lock is in use")
	})
}

func TestManyContendersMakeProgress(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		lockers := 32
		if testing.Short() {
			lockers = 12
		}
		c := newCluster(t, 5)
		distant(c)
		var all []*redlock.Locker
		for range lockers {
			all = append(all, newLocker(t, c))
		}
		start := time.Now()
		var wg sync.WaitGroup
		for _, l := range all {
			wg.Go(func() {
				k, err := l.Acquire(t.Context(), job, redlock.WithTTL(time.Hour))
				if assert.NoError(t, err) {
					time.Sleep(roundTrip)
					assert.NoError(t, k.Release(t.Context()))
				}
			})
		}
		wg.Wait()
		t.Log(time.Since(start))
		require.LessOrEqual(t, time.Since(start), time.Duration(lockers)*2*soon)
	})
}

func TestSetsOfNamesThatLookAlikeDoNotQueueTogether(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, "a")
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			_, err := l.AcquireAll(ctx, []string{"a", "b"})
			waited <- err
		}()
		synctest.Wait()
		for _, name := range []string{"a\x00b", `"a", "b"`, "a, b"} {
			soon, done := context.WithTimeout(t.Context(), time.Minute)
			other, err := l.Acquire(soon, name)
			done()
			require.NoError(t, err, "%q is free, whoever waits for a and b", name)
			require.NoError(t, other.Release(t.Context()))
		}
		cancel()
		requireOutcome(t, <-waited, redlock.ErrTaken)
		require.NoError(t, k.Release(t.Context()))
	})
}
