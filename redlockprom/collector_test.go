package redlockprom_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlockprom"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestTheLifeOfALockIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		c, read := newCollector(t)
		locker := newLocker(t, cluster, c)
		for i := range cluster.Len() {
			cluster.Node(i).SetDelay(time.Millisecond)
		}
		before := read.all()
		lock, err := locker.Acquire(t.Context(), "a", redlock.WithFencing(true), redlock.WithDriftFactor(0))
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.NoError(t, lock.Renew(t.Context()))
		time.Sleep(4 * time.Second)
		require.NoError(t, lock.Release(t.Context()))
		synctest.Wait()
		changed := read.since(before)
		for name, want := range map[string]float64{
			"redlock_attempts_total{result=acquired}":          1,
			"redlock_acquisitions_total{result=acquired}":      1,
			"redlock_wait_seconds_count":                       1,
			"redlock_renewals_total{result=renewed}":           1,
			"redlock_releases_total{result=released}":          1,
			"redlock_hold_seconds_count":                       1,
			"redlock_release_validity_seconds_count":           1,
			"redlock_operation_seconds_count{operation=renew}": 1,
			"redlock_fencing_tokens_total{round_trips=1}":      1,
		} {
			assert.InDelta(t, want, changed[name], 0, name)
		}
		assert.InDelta(t, 0.001, changed["redlock_wait_seconds_sum"], 0.001)
		assert.InDelta(t, 7, changed["redlock_hold_seconds_sum"], 0.1)
		assert.InDelta(t, 6, changed["redlock_release_validity_seconds_sum"], 0.1, "a TTL of ten, renewed four seconds ago")
		for i := range cluster.Len() {
			node := cluster.Node(i).Addr()
			votes := changed["redlock_votes_total{node="+node+",vote=granted}"] + changed["redlock_votes_total{node="+node+",vote=pending}"]
			assert.InDelta(t, 3, votes, 0, "in the attempt, the renewal and the release")
		}
		assert.NotContains(t, changed, "redlock_locks_lost_total{reason=expired}")
	})
}

func TestAcquisitionsAreCountedByWhatCameOfThem(t *testing.T) {
	for result, acquire := range map[string]func(*testing.T, *redlocktest.Cluster, *redlock.Locker) error{
		"taken": func(t *testing.T, _ *redlocktest.Cluster, l *redlock.Locker) error {
			_, err := l.TryAcquire(t.Context(), "held")
			return err
		},
		"given_up": func(t *testing.T, _ *redlocktest.Cluster, l *redlock.Locker) error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "held")
			return err
		},
		"no_quorum": func(t *testing.T, c *redlocktest.Cluster, l *redlock.Locker) error {
			c.Node(0).Stop()
			c.Node(1).Stop()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "free")
			return err
		},
		"lost": func(t *testing.T, _ *redlocktest.Cluster, l *redlock.Locker) error {
			_, err := l.Resume(t.Context(), []string{"free"}, "not its token")
			return err
		},
	} {
		t.Run(result, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := redlocktest.StartPiped(t, 3)
				c, read := newCollector(t)
				locker := newLocker(t, cluster, c)
				held, err := locker.TryAcquire(t.Context(), "held", redlock.WithTTL(time.Hour))
				require.NoError(t, err)
				before := read.all()
				require.Error(t, acquire(t, cluster, locker))
				changed := read.since(before)
				assert.InDelta(t, 1, changed["redlock_acquisitions_total{result="+result+"}"], 0)
				for name := range changed {
					if strings.HasPrefix(name, "redlock_acquisitions_total") {
						assert.Contains(t, name, result)
					}
				}
				assert.InDelta(t, 1, changed["redlock_wait_seconds_count"], 0, "waiting in vain is waiting")
				if result != "no_quorum" {
					require.NoError(t, held.Release(t.Context()))
				}
			})
		})
	}
}

func TestLossesAreCountedOnceByReason(t *testing.T) {
	remove := func(c *redlocktest.Cluster) {
		for i := range c.Len() {
			c.Node(i).Delete("a")
		}
	}
	for reason, lose := range map[string]func(*testing.T, *redlocktest.Cluster, *redlock.Lock){
		"expired": func(*testing.T, *redlocktest.Cluster, *redlock.Lock) { time.Sleep(15 * time.Second) },
		"max_hold": func(t *testing.T, _ *redlocktest.Cluster, k *redlock.Lock) {
			for k.Renew(t.Context()) == nil {
				time.Sleep(5 * time.Second)
			}
		},
		"deleted": func(t *testing.T, c *redlocktest.Cluster, k *redlock.Lock) {
			remove(c)
			require.ErrorIs(t, k.Renew(t.Context()), redlock.ErrLost)
		},
		"stolen": func(t *testing.T, c *redlocktest.Cluster, k *redlock.Lock) {
			c.Node(0).Set("a", "other", time.Minute)
			c.Node(1).Set("a", "other", time.Minute)
			require.ErrorIs(t, k.Renew(t.Context()), redlock.ErrLost)
		},
		"found_at_release": func(_ *testing.T, c *redlocktest.Cluster, _ *redlock.Lock) { remove(c) },
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := redlocktest.StartPiped(t, 3)
				c, read := newCollector(t)
				locker := newLocker(t, cluster, c)
				before := read.all()
				lock, err := locker.Acquire(t.Context(), "a", redlock.WithMaxHold(30*time.Second))
				require.NoError(t, err)
				_ = lock.Done() // somebody watches
				lose(t, cluster, lock)
				require.ErrorIs(t, lock.Release(t.Context()), redlock.ErrLost)
				synctest.Wait()
				changed := read.since(before)
				for name := range changed {
					if strings.HasPrefix(name, "redlock_locks_lost_total") {
						assert.Equal(t, "redlock_locks_lost_total{reason="+reason+"}", name)
					}
				}
				assert.InDelta(t, 1, changed["redlock_locks_lost_total{reason="+reason+"}"], 0)
				assert.InDelta(t, 1, changed["redlock_hold_seconds_count"], 0, "the end of a lock is counted once")
				assert.InDelta(t, 1, changed["redlock_releases_total{result=lost}"], 0)
				assert.InDelta(t, 1, changed["redlock_release_validity_seconds_count"], 0)
			})
		})
	}
}

func TestReclaimsArePendingUntilTheNodeIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		c, read := newCollector(t)
		locker := newLocker(t, cluster, c)
		lock, err := locker.Acquire(t.Context(), "a", redlock.WithTTL(time.Hour))
		require.NoError(t, err)
		synctest.Wait()
		cluster.Node(0).Stop()
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.InDelta(t, 1, read.value("redlock_reclaims_pending"), 0)
		require.NoError(t, cluster.Node(0).Restart())
		time.Sleep(time.Minute)
		assert.InDelta(t, 0, read.value("redlock_reclaims_pending"), 0)
		assert.InDelta(t, 1, read.value("redlock_reclaims_total{node="+cluster.Node(0).Addr()+",result=undone}"), 0)
	})
}

func TestWhatHasToBeAskedForIsShownOnlyIfTheLockerIsTracked(t *testing.T) {
	_, read := newCollector(t)
	for name := range read.all() {
		assert.NotContains(t, name, "redlock_reclaims_pending")
		assert.NotContains(t, name, "redlock_fencing_tokens_total")
	}
}

func TestLockersShareARegistryUnderDifferentNames(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(redlockprom.New("orders")))
	require.NoError(t, registry.Register(redlockprom.New("jobs", redlockprom.WithNames(strings.ToUpper))))
	require.Error(t, registry.Register(redlockprom.New("orders")))
	_, err := registry.Gather()
	require.NoError(t, err)
}

func TestAllThatIsCountedBeginsAtZero(t *testing.T) {
	_, read := newCollector(t)
	values := read.all()
	for _, name := range []string{
		"redlock_acquisitions_total{result=no_quorum}", "redlock_attempts_total{result=taken}", "redlock_renewals_total{result=lost}",
		"redlock_releases_total{result=no_quorum}", "redlock_locks_lost_total{reason=stolen}", "redlock_wait_seconds_count",
	} {
		assert.Contains(t, values, name, "a rate would not see the first")
	}
}

// Wherever a scrape has got stuck, the locks go on.
func TestObservingDoesNotWaitForAScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCollector(t)
		observe := func() {
			for _, e := range events("node") {
				c.Observe(e)
			}
		}
		observe()
		metrics := make(chan prometheus.Metric)
		go func() {
			c.Collect(metrics)
			close(metrics)
		}()
		for range metrics {
			synctest.Wait() // it is sending the next
			observe()
		}
	})
}

// events are one of each type.
func events(node string) []redlock.Event {
	votes := []redlock.NodeVote{{Node: node, Vote: redlock.VoteGranted}}
	names := []string{"a"}
	return []redlock.Event{
		redlock.Attempted{Names: names, Votes: votes},
		redlock.Acquired{Names: names},
		redlock.AcquireFailed{Names: names, Err: redlock.ErrTaken},
		redlock.Renewed{Names: names, Votes: votes},
		redlock.Lost{Names: names, Reason: redlock.LossExpired},
		redlock.Released{Names: names, Votes: votes},
		redlock.Reclaimed{Node: node},
		redlock.NodeSick{Node: node},
		redlock.NodeWell{Node: node},
		redlock.NodeQuarantined{Node: node, For: time.Second},
	}
}

func TestObservingAllocatesNothing(t *testing.T) {
	c := redlockprom.New("", redlockprom.WithNames(func(string) string { return "all" }))
	for _, e := range events("a") {
		if _, loss := e.(redlock.Lost); loss {
			continue
		}
		assert.Zero(t, testing.AllocsPerRun(100, func() { c.Observe(e) }), "%T", e)
	}
}

func BenchmarkObserve(b *testing.B) {
	c := redlockprom.New("")
	votes := make([]redlock.NodeVote, 5)
	for i := range votes {
		votes[i] = redlock.NodeVote{Node: fmt.Sprint("node", i), Vote: redlock.VoteGranted}
	}
	for _, e := range []redlock.Event{
		redlock.Attempted{Names: []string{"a"}, Votes: votes},
		redlock.Acquired{Names: []string{"a"}},
	} {
		b.Run(fmt.Sprintf("%T", e), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Observe(e)
			}
		})
	}
}
