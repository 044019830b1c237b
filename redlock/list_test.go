package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// listed returns the names that a listing yields, sorted, and its errors.
func listed(t *testing.T, l *redlock.Locker, pattern string) (names []string, errs []error) {
	t.Helper()
	for s, err := range l.List(t.Context(), pattern) {
		if err != nil {
			require.Nil(t, s)
			errs = append(errs, err)
			continue
		}
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names, errs
}

func TestListYieldsEveryLockOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprintf("order:%03d", i))
			acquired(t, l, want[i], redlock.WithFencing(true))
		}
		acquired(t, l, "invoice")
		c.Node(2).Set("order:left behind", "token", time.Minute)
		want = append(want, "order:left behind")
		synctest.Wait()
		names, errs := listed(t, l, "order:*")
		require.Empty(t, errs)
		assert.Equal(t, want, names)
		names, _ = listed(t, l, "")
		assert.Equal(t, append([]string{"invoice"}, want...), names, "no counters")
	})
}

func TestListShowsWhatInspectDoes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, redlock.WithKeyPrefix("lock:"))
		acquired(t, l, job, redlock.WithFencing(true))
		synctest.Wait()
		want := inspected(t, l)
		for s, err := range l.List(t.Context(), "j?b") {
			require.NoError(t, err)
			assert.Equal(t, want, s)
		}
	})
}

func TestThePrefixStandsForItselfAndThePatternForMany(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithKeyPrefix(`*[a]?\:`))
		other := newLocker(t, c, redlock.WithKeyPrefix(`xaxx:`))
		acquired(t, l, "a*b")
		acquired(t, l, "acb")
		acquired(t, other, "adb")
		synctest.Wait()
		for pattern, want := range map[string][]string{
			"a*b":     {"a*b", "acb"},
			`a\*b`:    {"a*b"},
			"a[c-d]b": {"acb"},
			"a":       nil,
		} {
			names, errs := listed(t, l, pattern)
			require.Empty(t, errs)
			assert.Equal(t, want, names, "%s", pattern)
		}
	})
}

func TestAListingGoesOnWithoutAMinority(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		acquired(t, l, job)
		synctest.Wait()
		c.Node(0).Stop()
		c.Node(1).SetError("NOPERM this user has no permissions to run the 'scan' command", "SCAN")
		names, errs := listed(t, l, "*")
		assert.Equal(t, []string{job}, slices.DeleteFunc(names, func(s string) bool { return strings.HasPrefix(s, "warm-up") }))
		require.Len(t, errs, 2)
		for i, err := range errs {
			requireShape(t, err)
			var node *redlock.NodeError
			require.ErrorAs(t, err, &node)
			assert.Equal(t, c.Addrs()[i], node.Addr)
			assert.Equal(t, "list", node.Op)
		}

		c.Node(2).Stop()
		names, errs = listed(t, l, "*")
		require.Empty(t, names)
		require.Len(t, errs, 4)
		failed := requireQuorumError(t, errs[3])
		requireOutcome(t, failed, redlock.ErrNoQuorum)
		assert.Equal(t, 3, failed.Failed)
	})
}

func TestWhatCannotBeALockIsNotListed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) {
			n.Set("a", strings.Repeat("x", 257), time.Minute)
			n.Set("b", strings.Repeat("x", 256), time.Minute)
			n.Set("redlock:fence:a", "1", time.Minute)
		})
		names, errs := listed(t, l, "?")
		require.Empty(t, errs)
		assert.Equal(t, []string{"b"}, names)
		names, _ = listed(t, l, "redlock:*")
		assert.Empty(t, names)
	})
}

func TestAListingEndsWithItsContextWithTheLockerAndWithTheLoop(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		acquired(t, l, job)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for s, err := range l.List(ctx, "*") {
			require.Nil(t, s)
			require.ErrorIs(t, err, context.Canceled)
		}
		for _, err := range l.List(t.Context(), "*") {
			require.NoError(t, err)
			require.NoError(t, l.Close(), "a loop keeps nobody from closing")
			break
		}
		_, errs := listed(t, l, "*")
		require.Len(t, errs, 1)
		requireOutcome(t, errs[0], redlock.ErrClosed)
		_, errs = listed(t, l, strings.Repeat("*", 2000))
		requireOutcome(t, errors.Join(errs...), redlock.ErrConfig)
	})
}
