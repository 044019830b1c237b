package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/sim"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestHoweverManyNamesThereAreEachNodeGetsOneCall(t *testing.T) {
	for _, count := range []int{1, 2, 17, 128} {
		for _, fencing := range []bool{false, true} {
			t.Run(fmt.Sprint(count, fencing), func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 5)
					l := newLocker(t, c, redlock.WithFencing(fencing))
					names := make([]string, count)
					for i := range names {
						names[i] = fmt.Sprint("name", i)
					}
					var k *redlock.Lock
					for what, do := range []func() error{
						func() (err error) { k, err = l.AcquireAll(t.Context(), names); return err },
						func() error { return k.Renew(t.Context()) },
						func() error { return k.Release(t.Context()) },
					} {
						before := calls(c)
						require.NoError(t, do())
						for i, after := range calls(c) {
							require.Equal(t, before[i]+1, after, "operation %d, node %d", what, i)
						}
					}
					requireFree(t, c, names...)
				})
			})
		}
	}
}

func TestALockOfSeveralNamesIsLostWithAnyOfThem(t *testing.T) {
	names := []string{"a", "b", "c"}
	for _, name := range names {
		for reason, strike := range map[string]func(*redlocktest.Node){
			"deleted": func(n *redlocktest.Node) { n.Delete(name) },
			"stolen":  func(n *redlocktest.Node) { n.Set(name, "another's", time.Hour) },
		} {
			t.Run(name+" "+reason, func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 5)
					l := newLocker(t, c, redlock.WithRefill(false))
					k, err := l.AcquireAll(t.Context(), names)
					require.NoError(t, err)
					synctest.Wait() // the last two votes came after the lock
					each(c, []int{0, 1}, strike)
					require.NoError(t, k.Renew(t.Context()), "a minority")
					each(c, []int{4}, strike)
					err = k.Renew(t.Context())
					requireOutcome(t, err, redlock.ErrLost)
					require.ErrorContains(t, err, reason)
					require.True(t, isDone(k.Done()))
					require.Zero(t, k.Validity())
					requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
					synctest.Wait()
					for _, name := range names {
						require.NotContains(t, c.Holders(name), k.Token(), "what is left is deleted")
					}
				})
			})
		}
	}
}

func TestOrderAndDuplicatesOfNamesDoNotMatter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		one, two := newLocker(t, c), newLocker(t, c)
		sorted := []string{"a", "b", "c", "d"}
		shuffled := func() []string {
			names := append(slices.Clone(sorted), sorted[:rand.N(len(sorted))]...)
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			return names
		}
		last := uint64(0)
		for range 20 {
			k, err := one.AcquireAll(t.Context(), shuffled(), redlock.WithFencing(true))
			require.NoError(t, err)
			require.Equal(t, sorted, k.Names())
			require.Greater(t, k.FencingToken(), last)
			synctest.Wait() // a late vote for one must not come after the release by two
			_, err = two.TryAcquireAll(t.Context(), shuffled())
			requireOutcome(t, err, redlock.ErrTaken)
			require.Equal(t, sorted, requireQuorumError(t, err).Held)
			resumed, err := two.Resume(t.Context(), shuffled(), k.Token(), redlock.WithFencing(true))
			require.NoError(t, err)
			require.Equal(t, sorted, resumed.Names())
			require.Greater(t, resumed.FencingToken(), k.FencingToken())
			last = resumed.FencingToken()
			require.NoError(t, resumed.Release(t.Context()))
			requireFree(t, c, sorted...)
		}
	})
}

// Callers of one process queue up by what they want. Names may hold any bytes,
// also those that a join of names would put between them.
func TestDifferentSetsOfNamesDoNotQueueForEachOther(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l, other := newLocker(t, c), newLocker(t, c)
		held, err := other.AcquireAll(t.Context(), []string{"a", "b"})
		require.NoError(t, err)
		got := make(chan error)
		go func() {
			_, err := l.AcquireAll(t.Context(), []string{"a", "b"})
			got <- err
		}()
		synctest.Wait()
		for _, name := range []string{"a\x00b", "ab", "a b", `["a" "b"]`, `"a" "b"`, "1:a1:b", `redlock`} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			k, err := l.Acquire(ctx, name)
			cancel()
			require.NoError(t, err, "%q is free", name)
			require.NoError(t, k.Release(t.Context()))
		}
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-got)
	})
}

// Names are any bytes. Two sets of names exclude each other if they have a name
// in common, and have nothing to do with each other if they have not.
func FuzzNames(f *testing.F) {
	for _, sets := range [][2]string{
		{"a", "a"},
		{"a,b", "b,a,a"},
		{"a,b", "a\x00b"},
		{"a", "redlock:fence:a"},
		{"redlock:fence:a", "a"},
		{"redlock:released:a", "redlock"},
		{"", ","},
		{"\xff\r\n$3", "*1\r\n"},
		{"{a}b", "{a}c"},
		{"ключ", "%s%d"},
		{strings.Repeat("n", 1024), strings.Repeat("n", 1023)},
		{strings.Repeat("n", 1025), "n"},
		{`"a" "b"`, "a,b"},
	} {
		f.Add(sets[0], sets[1])
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		synctest.Test(t, func(t *testing.T) {
			checkSets(t, strings.Split(first, ","), strings.Split(second, ","))
		})
	})
}

func usableNames(names []string) bool {
	unique := sortedOnce(names)
	return len(unique) <= 128 && !slices.ContainsFunc(unique, func(name string) bool {
		return name == "" || len(name) > 1024 || strings.HasPrefix(name, "redlock:")
	})
}

func sortedOnce(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func checkSets(t *testing.T, first, second []string) {
	t.Helper()
	cluster := sim.NewCluster(1, 1)
	lockers := make([]*redlock.Locker, 2)
	for i := range lockers {
		l, err := redlock.New(cluster.Addrs(), redlock.WithDialer(cluster.Dialer(i)), redlock.WithClock(clock.Monotonic()))
		require.NoError(t, err)
		defer l.Close()
		lockers[i] = l
	}
	keys := func() (keys []string) {
		synctest.Wait()
		cluster.Node(0).Store(func(s *sim.Store) { keys = s.Keys() })
		return keys
	}

	k, err := lockers[0].TryAcquireAll(t.Context(), first, redlock.WithFencing(true))
	if !usableNames(first) {
		requireOutcome(t, err, redlock.ErrConfig)
		require.Empty(t, keys())
		return
	}
	require.NoError(t, err)
	names := sortedOnce(first)
	require.Equal(t, names, k.Names())
	require.Equal(t, names[0], k.Name())
	want := slices.Clone(names)
	for _, name := range names {
		want = append(want, fenceOf+name)
	}
	require.ElementsMatch(t, want, keys())
	cluster.Node(0).Store(func(s *sim.Store) {
		for _, name := range names {
			value, _, _ := s.Get(name)
			require.Equal(t, k.Token(), value)
		}
	})

	// Somebody of the other process waits for the first set.
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() {
		_, err := lockers[1].AcquireAll(ctx, first, redlock.WithTTL(time.Hour))
		waited <- err
	}()
	time.Sleep(20 * time.Millisecond)

	soon, enough := context.WithTimeout(t.Context(), time.Second)
	defer enough()
	other, err := lockers[1].AcquireAll(soon, second)
	common := slices.DeleteFunc(sortedOnce(second), func(name string) bool { return !slices.Contains(names, name) })
	switch {
	case !usableNames(second):
		requireOutcome(t, err, redlock.ErrConfig)
	case len(common) > 0:
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = lockers[1].TryAcquireAll(t.Context(), second)
		requireOutcome(t, err, redlock.ErrTaken)
		require.Equal(t, common, requireQuorumError(t, err).Held)
	default:
		require.NoError(t, err)
		require.NoError(t, other.Release(t.Context()))
	}
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	require.NoError(t, k.Release(t.Context()))
	time.Sleep(time.Second) // what was cancelled is undone
	require.ElementsMatch(t, want[len(names):], keys())
}
