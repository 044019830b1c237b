package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

const fenceOf = "redlock:fence:"

// fenced acquires and releases, and returns the number.
func fenced(t *testing.T, l *redlock.Locker, names ...string) uint64 {
	t.Helper()
	k, err := l.AcquireAll(t.Context(), names, redlock.WithFencing(true))
	require.NoError(t, err)
	require.NoError(t, k.Release(t.Context()))
	return k.FencingToken()
}

func TestFencingTokensGrow(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				l := newLocker(t, newCluster(t, n))
				last := uint64(0)
				for range 50 {
					number := fenced(t, l, job)
					require.Greater(t, number, last)
					require.Less(t, number, uint64(1)<<53)
					last = number
				}
				require.GreaterOrEqual(t, last, uint64(time.Now().UnixMicro()), "they begin at the wall clock")
			})
		})
	}
}

func TestFencingTokensGrowThroughContentionFaultsAndWrongClocks(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		clocks := make([]*bentClock, 4)
		lockers := make([]*redlock.Locker, len(clocks))
		for i := range lockers {
			clocks[i] = newBentClock()
			lockers[i] = newLocker(t, c, redlock.WithClock(clocks[i]), redlock.WithFencing(true))
		}
		clocks[1].set(time.Hour)
		clocks[2].set(-time.Hour)

		stop := make(chan struct{})
		go func() { // a minority that changes, and a clock that jumps
			defer close(stop)
			for i := range 5 {
				down := []int{rand.N(5), rand.N(5)}
				each(c, down[:1], (*redlocktest.Node).Stop)
				each(c, down[1:], (*redlocktest.Node).Hang)
				clocks[3].set(rand.N(4*time.Hour) - 2*time.Hour)
				time.Sleep(time.Second)
				c.Node(down[0]).Resume()
				c.Node(down[1]).Resume()
				if err := c.Node(down[0]).Restart(); err != nil {
					t.Error(i, err)
				}
				time.Sleep(time.Second)
			}
		}()

		last, locks := uint64(0), 0 // guarded by the lock
		done := make(chan struct{})
		for _, l := range lockers {
			go func() {
				defer func() { done <- struct{}{} }()
				for !isDone(stop) {
					k, err := l.Acquire(t.Context(), job)
					if err != nil {
						t.Error(err)
						return
					}
					if k.FencingToken() <= last {
						t.Errorf("%d after %d", k.FencingToken(), last)
					}
					last = k.FencingToken()
					locks++
					time.Sleep(rand.N(50 * time.Millisecond))
					_ = k.Release(t.Context()) // a minority may be down
				}
			}()
		}
		for range lockers {
			<-done
		}
		require.Greater(t, locks, 30)
	})
}

func TestAnHourBetweenClocksDoesNotMatter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		bent := newBentClock()
		l := newLocker(t, c, redlock.WithClock(bent))
		last := uint64(0)
		for _, off := range []time.Duration{0, time.Hour, 0, -time.Hour, time.Hour, -100 * 365 * 24 * time.Hour, 0} {
			bent.set(off)
			for range 3 {
				number := fenced(t, l, job)
				require.Greater(t, number, last, "clock off by %v", off)
				last = number
			}
		}
	})
}

func TestAClockInTheFarFutureDoesNotUseTheNumbersUp(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		bent := newBentClock()
		bent.set(280 * 365 * 24 * time.Hour)
		l := newLocker(t, c, redlock.WithClock(bent))
		number := fenced(t, l, job)
		require.LessOrEqual(t, number, uint64(1)<<52)
		require.Greater(t, fenced(t, l, job), number)
	})
}

func TestNodesThatAgreeCostOneRoundTrip(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(10 * time.Millisecond) })
		before := calls(c)
		for i := range 3 {
			require.Equal(t, 10*time.Millisecond, took(func() {
				acquired(t, l, fmt.Sprint(job, i), redlock.WithFencing(true))
			}))
		}
		for i, n := range calls(c) {
			require.Equal(t, before[i]+3, n)
		}
	})
}

// setCounters gives the nodes counters far ahead of the clocks.
func setCounters(c *redlocktest.Cluster, name string, counters ...uint64) {
	for i, number := range counters {
		if number > 0 {
			c.Node(i).Set(fenceOf+name, strconv.FormatUint(number, 10), time.Hour)
		}
	}
}

const ahead = uint64(4e15)

func TestNodesThatDisagreeAreBroughtIntoLine(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		// The first three decide; for the two that come later nobody waits.
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetDelay(10 * time.Millisecond) })
		each(c, []int{3, 4}, func(n *redlocktest.Node) { n.SetDelay(15 * time.Millisecond) })
		setCounters(c, job, ahead, ahead+7, ahead)
		before := calls(c)
		var k *redlock.Lock
		require.Equal(t, 20*time.Millisecond, took(func() { k = acquired(t, l, job, redlock.WithFencing(true)) }))
		require.Equal(t, ahead+8, k.FencingToken())
		require.Equal(t, 9898*time.Millisecond-20*time.Millisecond, k.Validity(), "the second round counts")
		time.Sleep(15 * time.Millisecond)
		for i, n := range calls(c) {
			require.Equal(t, before[i]+2, n)
			value, ttl, _ := c.Node(i).Get(fenceOf + job)
			require.Equal(t, fmt.Sprint(ahead+8), value)
			require.GreaterOrEqual(t, ttl, 24*time.Hour-time.Second)
		}
	})
}

// The largest number is on one node only, and that node is lost for good
// before the next holder comes.
func TestANumberOutlivesTheNodeThatGaveIt(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		setCounters(c, job, ahead)
		// Node 0 is among the first to answer, and decides.
		each(c, []int{3, 4}, func(n *redlocktest.Node) { n.SetDelay(time.Millisecond) })
		k := acquired(t, l, job, redlock.WithFencing(true))
		require.Equal(t, ahead+1, k.FencingToken())
		require.NoError(t, k.Release(t.Context()))
		synctest.Wait()
		for _, other := range []int{1, 2} {
			c.Node(0).Stop()
			c.Node(other).Stop()
			require.Greater(t, fenced(t, l, job), ahead+1)
			require.NoError(t, c.Node(other).Restart())
			time.Sleep(2 * time.Second)
		}
	})
}

// The shortest history that docs/model found, with keys that vanish before
// their TTL: two attempts overlap, each node sees one of them first, and both
// arrive at one number. The node that both of them need for it must refuse the
// second, though it holds the key.
func TestOverlappingAttemptsNeverGetTheSameNumberThoughKeysVanish(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		first, second := newLocker(t, c), newLocker(t, c)
		setCounters(c, job, ahead+1, ahead+1, ahead)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetDelay(50 * time.Millisecond) })
		over := make(chan error)
		go func() { // gets ahead+1 from node 2 at once
			_, err := first.TryAcquire(t.Context(), job, redlock.WithFencing(true))
			over <- err
		}()
		time.Sleep(10 * time.Millisecond) // so that node 0 has it before the next

		require.True(t, c.Node(2).Delete(job))
		c.Node(1).SetDelay(0)
		k := acquired(t, second, job, redlock.WithFencing(true)) // from nodes 1 and 2
		require.Equal(t, ahead+2, k.FencingToken())

		require.True(t, c.Node(1).Delete(job))
		c.Node(1).SetReplyDelay(200 * time.Millisecond)
		// Now the first attempt gets ahead+2 from node 0, and ahead+3 from node 1
		// without hearing of it; so it asks both to confirm ahead+2.
		requireOutcome(t, <-over, redlock.ErrNoQuorum)
		value, _, _ := c.Node(1).Get(fenceOf + job)
		require.Equal(t, fmt.Sprint(ahead+3), value, "the history went another way")
	})
}

func TestANumberThatCannotBeConfirmedIsNoLock(t *testing.T) {
	for name, strike := range map[string]struct {
		do   func(c *redlocktest.Cluster)
		cost time.Duration
	}{
		"keys deleted": {func(c *redlocktest.Cluster) {
			each(c, upTo(3), func(n *redlocktest.Node) { n.Delete(job) })
		}, 40 * time.Millisecond},
		"nodes hung": {func(c *redlocktest.Cluster) {
			each(c, upTo(3), (*redlocktest.Node).Hang)
			time.AfterFunc(time.Second, func() { each(c, upTo(3), (*redlocktest.Node).Resume) })
		}, 20*time.Millisecond + redlock.DefaultNodeTimeout},
		"nodes stopped": {func(c *redlocktest.Cluster) {
			each(c, upTo(3), (*redlocktest.Node).Stop)
			time.AfterFunc(time.Second, func() {
				each(c, upTo(3), func(n *redlocktest.Node) { _ = n.Restart() })
			})
		}, 65 * time.Millisecond},
		"errors": {func(c *redlocktest.Cluster) {
			each(c, upTo(3), func(n *redlocktest.Node) { n.SetError("OOM", "EVALSHA") })
			time.AfterFunc(time.Second, func() {
				each(c, upTo(3), func(n *redlocktest.Node) { n.SetError("") })
			})
		}, 40 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				setCounters(c, job, ahead, ahead+7, ahead)
				each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(20 * time.Millisecond) })
				time.AfterFunc(10*time.Millisecond, func() { strike.do(c) })
				elapsed := took(func() {
					_, err := l.TryAcquire(t.Context(), job, redlock.WithFencing(true), redlock.WithTTL(time.Minute))
					requireOutcome(t, err, redlock.ErrNoQuorum)
					failed := requireQuorumError(t, err)
					require.NotEmpty(t, failed.Nodes)
				})
				require.LessOrEqual(t, elapsed, strike.cost)
				time.Sleep(5 * time.Second)
				requireFree(t, c, job)
			})
		})
	}
}

func TestAConfirmationThatComesTooLateIsNoLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		setCounters(c, job, ahead, ahead+7, ahead)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(60 * time.Millisecond) })
		_, err := l.TryAcquire(t.Context(), job, redlock.WithFencing(true), redlock.WithTTL(100*time.Millisecond))
		requireOutcome(t, err, redlock.ErrNoQuorum)
		_ = requireQuorumError(t, err)
		requireFree(t, c, job)
	})
}

func TestACancelledConfirmationIsUndone(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		setCounters(c, job, ahead, ahead+7, ahead)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(60 * time.Millisecond) })
		ctx, cancel := context.WithTimeoutCause(t.Context(), 90*time.Millisecond, errTest)
		defer cancel()
		require.Equal(t, 90*time.Millisecond, took(func() {
			_, err := l.TryAcquire(ctx, job, redlock.WithFencing(true))
			requireEnded(t, err, ctx)
			require.Equal(t, "confirm", requireQuorumError(t, err).Op)
		}))
		requireFree(t, c, job)
	})
}

func TestTheNumberOfSeveralNamesIsLargerThanThatOfEach(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		setCounters(c, "b", ahead, ahead, ahead, ahead, ahead)
		a, b := fenced(t, l, "a"), fenced(t, l, "b")
		both := fenced(t, l, "a", "b", "c")
		require.Greater(t, both, a)
		require.Greater(t, both, b)
		for _, name := range []string{"a", "b", "c"} {
			require.Greater(t, fenced(t, l, name), both, name)
		}
		require.Greater(t, fenced(t, l, "b", "c"), both)
	})
}

func TestCountersAreKeptForADayAndForLongLocksLonger(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		for ttl, kept := range map[time.Duration]time.Duration{
			time.Second: 24 * time.Hour, 48 * time.Hour: 96 * time.Hour,
		} {
			name := ttl.String()
			k := acquired(t, l, name, redlock.WithFencing(true), redlock.WithTTL(ttl))
			_, got, _ := c.Node(0).Get(fenceOf + name)
			require.Equal(t, kept, got)
			require.NoError(t, k.Release(t.Context()))
			_, got, _ = c.Node(0).Get(fenceOf + name)
			require.Equal(t, kept, got, "a release leaves the counter")
		}
	})
}

func TestTheCounterBelongsToThePrefixedKey(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c, redlock.WithKeyPrefix("app:"))
		acquired(t, l, job, redlock.WithFencing(true))
		require.Equal(t, []string{"app:job", "redlock:fence:app:job"}, c.Node(0).Keys())
	})
}

func TestARefusedAttemptRaisesNoCounter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithFencing(true))
		time.Sleep(time.Second)
		_, err := l.TryAcquire(t.Context(), job, redlock.WithFencing(true))
		requireOutcome(t, err, redlock.ErrTaken)
		synctest.Wait()
		require.Equal(t, map[string]int{fmt.Sprint(k.FencingToken()): 3}, c.Holders(fenceOf+job))
	})
}

// What holds when counters are lost, and no more than that.
func TestNumbersGoOnFromTheClocksWhereCountersAreLost(t *testing.T) {
	const passes = time.Minute
	for name, test := range map[string]struct {
		forget []int
		behind time.Duration // the second client's clock
		grows  bool
	}{
		"by all, clocks closer than the time that passed":              {upTo(5), passes / 2, true},
		"by all, clocks further apart":                                 {upTo(5), 2 * passes, false},
		"by a majority, clocks closer than the time that passed":       {upTo(3), passes / 2, true},
		"by a majority, clocks further apart":                          {upTo(3), 2 * passes, false},
		"by a minority, clocks further apart: a quorum keeps the rest": {upTo(2), time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				late := newBentClock()
				late.set(-test.behind)
				first, second := newLocker(t, c), newLocker(t, c, redlock.WithClock(late))
				k := acquired(t, first, job, redlock.WithFencing(true))
				require.NoError(t, k.Release(t.Context()))
				synctest.Wait()
				for _, node := range test.forget {
					require.NoError(t, c.Node(node).RestartEmpty())
				}
				// Of a majority's loss the rest may tell nothing.
				if quorum := 3; len(test.forget) >= quorum {
					each(c, upTo(5)[len(test.forget):], (*redlocktest.Node).Stop)
				}
				time.Sleep(passes)
				warm(t, second)
				next := acquired(t, second, job, redlock.WithFencing(true))
				require.Equal(t, test.grows, next.FencingToken() > k.FencingToken())
			})
		})
	}
}
