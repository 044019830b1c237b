package redsync_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/compat/redsync"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestTheExpiryIsThatOfTheKeysCutOffToMilliseconds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		m := locked(t, newRedsync(t, c), redsync.WithExpiry(3*time.Second+900*time.Microsecond))
		_, ttl, _ := c.Node(0).Get(job)
		require.Equal(t, 3*time.Second, ttl)
		require.Equal(t, 3*time.Second-32*time.Millisecond, time.Until(m.Until()))
	})
}

func TestTheDriftFactorIsTakenOffTheValidity(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		m := locked(t, newRedsync(t, c), redsync.WithDriftFactor(0.25))
		require.Equal(t, 6*time.Second-2*time.Millisecond, time.Until(m.Until()))
	})
}

func TestATryThatTookLongerThanTheTimeoutFactorHasFailed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for i := range 3 {
			c.Node(i).SetReplyDelay(100 * time.Millisecond)
		}
		short := rs.NewMutex(job, redsync.WithExpiry(9*time.Second), redsync.WithTimeoutFactor(0.01))
		took := timed(func() { require.ErrorIs(t, short.TryLock(), redsync.ErrFailed) })
		require.Less(t, took, 95*time.Millisecond+25*time.Millisecond)
		time.Sleep(time.Second)
		requireFree(t, c)

		long := rs.NewMutex(job, redsync.WithExpiry(9*time.Second), redsync.WithTimeoutFactor(0.02))
		require.NoError(t, long.TryLock())
	})
}

func TestATryMayTakeFiftyMillisecondsHoweverShortTheExpiry(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for i := range 3 {
			c.Node(i).SetReplyDelay(49 * time.Millisecond)
		}
		require.NoError(t, rs.NewMutex(job, redsync.WithExpiry(time.Second/2)).TryLock())
	})
}

func TestTheValueIsWhatTheFunctionMadeForTheTryThatWon(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		made := 0
		m := rs.NewMutex(job, redsync.WithGenValueFunc(func() (string, error) {
			made++
			return strings.Repeat("x", made), nil
		}))
		require.NoError(t, m.Lock())
		synctest.Wait()
		require.Equal(t, "x", m.Value())
		require.Equal(t, map[string]int{"x": 3}, c.Holders(job))
		require.Error(t, m.TryLock())
		_, err := m.Unlock()
		require.NoError(t, err)
		require.NoError(t, m.TryLock())
		require.Equal(t, "xxx", m.Value())
	})
}

func TestAValueThatComesTwiceInARowIsMadeAnother(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		m := rs.NewMutex(job, redsync.WithGenValueFunc(func() (string, error) { return "always", nil }))
		require.NoError(t, m.Lock())
		require.Equal(t, "always", m.Value())
		require.Error(t, m.TryLock(), "it is not taken for its own holder")
		synctest.Wait()
		require.Equal(t, map[string]int{"always": 3}, c.Holders(job), "nor does undoing that delete the holder's keys")
		_, err := m.Unlock()
		require.NoError(t, err)
		require.NoError(t, m.Lock())
		require.NotEqual(t, "always", m.Value())
		require.True(t, strings.HasPrefix(m.Value(), "always."))
	})
}

func TestAValueThatCannotBeMadeIsTheError(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		out := errors.New("out of values")
		err := rs.NewMutex(job, redsync.WithGenValueFunc(func() (string, error) { return "", out })).Lock()
		require.Equal(t, out, err)
		for _, value := range []string{"", strings.Repeat("x", 257)} {
			err := rs.NewMutex(job, redsync.WithGenValueFunc(func() (string, error) { return value, nil })).Lock()
			require.ErrorIs(t, err, redlock.ErrConfig)
		}
		requireFree(t, c)
	})
}

func TestFailFastDoesNotWaitForTheRest(t *testing.T) {
	for fast, want := range map[bool]time.Duration{true: 0, false: 10 * time.Millisecond} {
		bubbles := map[bool]string{true: "fast", false: "thorough"}
		t.Run(bubbles[fast], func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
				m := newRedsync(t, c).NewMutex(job, redsync.WithFailFast(fast))
				c.Node(1).SetDelay(10 * time.Millisecond)
				for _, do := range []func() error{
					m.Lock,
					func() error { _, err := m.Extend(); return err },
					func() error { _, err := m.Valid(); return err },
					func() error { _, err := m.Unlock(); return err },
				} {
					require.Equal(t, want, timed(func() { require.NoError(t, do()) }))
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestShufflingBeginsWithAnyNode(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		var written recorder
		rs := newRedsyncOn(t, redigoPools(t, c, written.dial(c.Dial))...)
		first := func(shuffle bool) string {
			m := rs.NewMutex(job, redsync.WithShufflePools(shuffle))
			written.take()
			require.NoError(t, m.Lock())
			order := written.take()
			require.ElementsMatch(t, c.Addrs(), order)
			_, err := m.Unlock()
			require.NoError(t, err)
			return order[0]
		}
		begun := map[string]bool{}
		for range 60 {
			require.Equal(t, c.Addrs()[0], first(false))
			begun[first(true)] = true
		}
		require.Len(t, begun, 5)
	})
}

func TestExtendHealsANodeOnlyIfTold(t *testing.T) {
	for name, test := range map[string]struct {
		options []redsync.Option
		want    int
	}{
		"told":     {[]redsync.Option{redsync.WithSetNXOnExtend()}, 5},
		"not told": {nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
				m := locked(t, newRedsync(t, c), test.options...)
				c.Node(2).Delete(job)
				ok, err := m.Extend()
				require.NoError(t, err)
				require.True(t, ok)
				synctest.Wait()
				require.Equal(t, map[string]int{m.Value(): test.want}, c.Holders(job))
			})
		})
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for name, option := range map[string]redsync.Option{
			"no expiry":           redsync.WithExpiry(0),
			"a negative expiry":   redsync.WithExpiry(-time.Second),
			"too short an expiry": redsync.WithExpiry(10*time.Millisecond - 1),
			"too long an expiry":  redsync.WithExpiry(366*24*time.Hour + time.Millisecond),
			"too much drift":      redsync.WithDriftFactor(1),
			"no time":             redsync.WithTimeoutFactor(0),
			"no number for time":  redsync.WithTimeoutFactor(math.NaN()),
		} {
			require.ErrorIs(t, rs.NewMutex(job, option).Lock(), redlock.ErrConfig, name)
			ok, err := rs.NewMutex(job, option, redsync.WithValue("some")).Extend()
			require.False(t, ok)
			require.ErrorIs(t, err, redlock.ErrConfig, name)
			ok, err = rs.NewMutex(job, option, redsync.WithValue("some")).Unlock()
			require.False(t, ok)
			require.ErrorIs(t, err, redlock.ErrConfig, name)
		}
		for name, expiry := range map[string]time.Duration{
			"shortest": 10 * time.Millisecond, "longest": 366 * 24 * time.Hour,
		} {
			// The shortest may be over before the nodes have answered.
			require.NotErrorIs(t, rs.NewMutex(name, redsync.WithExpiry(expiry)).TryLock(), redlock.ErrConfig, name)
		}
		require.ErrorIs(t, rs.NewMutex("").Lock(), redlock.ErrConfig)
		require.NoError(t, rs.NewMutex(job, redsync.WithTimeoutFactor(math.Inf(1))).Lock())
	})
}

func TestAnOptionMayBeAFunction(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		fast := redsync.OptionFunc(func(m *redsync.Mutex) {
			redsync.WithExpiry(3 * time.Second).Apply(m)
			redsync.WithFailFast(true).Apply(m)
		})
		locked(t, newRedsync(t, c), fast)
		_, ttl, _ := c.Node(0).Get(job)
		require.Equal(t, 3*time.Second, ttl)
	})
}
