package redlock_test

import (
	"crypto/tls"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// refused checks that err is ErrConfig and says all of this.
func refused(t *testing.T, err error, says ...string) {
	t.Helper()
	requireShape(t, err)
	requireOutcome(t, err, redlock.ErrConfig)
	for _, text := range says {
		require.ErrorContains(t, err, text)
	}
}

var threeNodes = []string{"redis1:6379", "redis2:6379", "redis3:6379"}

func TestLockOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	tests := []struct {
		opts []redlock.LockOption
		says []string
	}{
		{[]redlock.LockOption{redlock.WithTTL(0)}, []string{"WithTTL(0s)"}},
		{[]redlock.LockOption{redlock.WithTTL(-time.Second)}, []string{"WithTTL(-1s)"}},
		{[]redlock.LockOption{redlock.WithTTL(9 * time.Millisecond)}, []string{"WithTTL(9ms)", "10ms"}},
		{[]redlock.LockOption{redlock.WithTTL(366*24*time.Hour + time.Millisecond)}, []string{"WithTTL(8784h0m0.001s)"}},
		{[]redlock.LockOption{redlock.WithTTL(math.MaxInt64)}, []string{"WithTTL("}},
		{[]redlock.LockOption{redlock.WithTTL(time.Second + time.Microsecond)}, []string{"WithTTL(1.000001s)", "whole number of milliseconds"}},
		{[]redlock.LockOption{redlock.WithDriftFactor(-0.01)}, []string{"WithDriftFactor(-0.01)"}},
		{[]redlock.LockOption{redlock.WithDriftFactor(1)}, []string{"WithDriftFactor(1)"}},
		{[]redlock.LockOption{redlock.WithDriftFactor(math.NaN())}, []string{"WithDriftFactor(NaN)"}},
		{[]redlock.LockOption{redlock.WithDriftFactor(math.Inf(1))}, []string{"WithDriftFactor(+Inf)"}},
		{[]redlock.LockOption{redlock.WithDriftFactor(math.Inf(-1))}, []string{"WithDriftFactor(-Inf)"}},
		{[]redlock.LockOption{redlock.WithDriftFactor(0.9999)}, []string{"WithDriftFactor(0.9999)", "10s"}},
		{[]redlock.LockOption{redlock.WithMinValidity(-1)}, []string{"WithMinValidity(-1ns)"}},
		{[]redlock.LockOption{redlock.WithMinValidity(9898 * time.Millisecond)}, []string{"WithMinValidity(9.898s)", "10s"}},
		{[]redlock.LockOption{redlock.WithMinValidity(time.Second), redlock.WithTTL(time.Second)}, []string{"WithMinValidity(1s)", "988ms"}},
		{[]redlock.LockOption{redlock.WithMaxAttempts(-1)}, []string{"WithMaxAttempts(-1)"}},
		{[]redlock.LockOption{redlock.WithRetryDelay(0, time.Second)}, []string{"WithRetryDelay(0s, 1s)"}},
		{[]redlock.LockOption{redlock.WithRetryDelay(-1, time.Second)}, []string{"WithRetryDelay(-1ns, 1s)"}},
		{[]redlock.LockOption{redlock.WithRetryDelay(2*time.Second, time.Second)}, []string{"WithRetryDelay(2s, 1s)"}},
		{[]redlock.LockOption{redlock.WithOutageTolerance(-1)}, []string{"WithOutageTolerance(-1ns)"}},
		{[]redlock.LockOption{redlock.WithMaxHold(-1)}, []string{"WithMaxHold(-1ns)"}},
		{[]redlock.LockOption{redlock.WithMaxHold(1)}, []string{"WithMaxHold(1ns)", "10ms"}},
		{[]redlock.LockOption{redlock.WithMaxHold(clock.Longest + 1)}, []string{"WithMaxHold(", "8784h0m0s"}},
		{[]redlock.LockOption{redlock.WithMaxHold(time.Second), redlock.WithMinValidity(time.Second)}, []string{"WithMaxHold(1s)", "1s"}},
		{[]redlock.LockOption{redlock.WithRetryDelay(1, clock.Longest+1)}, []string{"WithRetryDelay(1ns, ", "8784h0m0s"}},
		{
			[]redlock.LockOption{redlock.WithMaxHold(time.Second), redlock.WithMinValidity(2 * time.Second)},
			[]string{"WithMaxHold(1s)", "2s"},
		},
		{[]redlock.LockOption{nil}, []string{"option 1 is nil"}},
		{[]redlock.LockOption{redlock.WithFencing(true), nil}, []string{"option 2 is nil"}},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.says), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 1)
				l := newLocker(t, c)
				before := commands(c)
				_, err := l.TryAcquire(t.Context(), job, test.opts...)
				refused(t, err, test.says...)
				_, err = l.AcquireAll(t.Context(), []string{job}, test.opts...)
				refused(t, err, test.says...)
				refused(t, l.Do(t.Context(), job, nil, test.opts[0:]...), lastOption(test.says)...)
				require.Equal(t, before, commands(c))

				opts := make([]redlock.Option, len(test.opts))
				for i, o := range test.opts {
					if o != nil {
						opts[i] = o
					}
				}
				_, err = redlock.New(threeNodes, opts...)
				refused(t, err, test.says...)
			})
		})
	}
}

// lastOption leaves out the position of an option: Do puts one of its own in
// front.
func lastOption(says []string) []string {
	if strings.HasPrefix(says[0], "option ") {
		return []string{"is nil"}
	}
	return says
}

func TestValuesAtTheLimitsAreAccepted(t *testing.T) {
	for _, opts := range [][]redlock.LockOption{
		{redlock.WithTTL(10 * time.Millisecond)},
		{redlock.WithTTL(366 * 24 * time.Hour)},
		{redlock.WithDriftFactor(0)},
		{redlock.WithDriftFactor(0.999)},
		{redlock.WithMinValidity(9898*time.Millisecond - 1)},
		{redlock.WithMaxAttempts(0)},
		{redlock.WithRetryDelay(1, 1)},
		{redlock.WithRetryDelay(clock.Longest, clock.Longest)},
		{redlock.WithMaxHold(10 * time.Millisecond)},
		{redlock.WithMaxHold(clock.Longest), redlock.WithMinHold(clock.Longest)},
		{redlock.WithMaxHold(time.Second), redlock.WithMinValidity(time.Second - 1)},
		{redlock.WithAutoRenew(false), redlock.WithRefill(false), redlock.WithFencing(false)},
	} {
		bad := make([]redlock.Option, len(opts))
		for i, o := range opts {
			bad[i] = o
		}
		l, err := redlock.New(threeNodes, bad...)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

func TestOptionsOfNewThatMakeNoSenseAreRefused(t *testing.T) {
	for _, test := range []struct {
		opt  redlock.Option
		says []string
	}{
		{redlock.WithNodeTimeout(0), []string{"WithNodeTimeout(0s)"}},
		{redlock.WithNodeTimeout(-time.Second), []string{"WithNodeTimeout(-1s)"}},
		{redlock.WithNodeTimeout(clock.Longest + 1), []string{"WithNodeTimeout(", "8784h0m0s"}},
		{redlock.WithRestartGuard(-1), []string{"WithRestartGuard(-1ns)"}},
		{redlock.WithRestartGuard(clock.Longest + 1), []string{"WithRestartGuard(", "8784h0m0s"}},
		{redlock.WithKeyPrefix(strings.Repeat("p", 1024)), []string{"WithKeyPrefix(", "pppp", "1024"}},
		{redlock.WithKeyPrefix("redlock:app:"), []string{`WithKeyPrefix("redlock:app:")`, "reserved"}},
		{redlock.WithOwner(strings.Repeat("o", 129)), []string{"WithOwner(", "ooo", "128"}},
		{redlock.WithOwner("two\nlines"), []string{`WithOwner("two\nlines")`}},
		{redlock.WithOwner("\xff"), []string{`WithOwner("\xff")`, "UTF-8"}},
		{redlock.WithClock(nil), []string{"WithClock(nil)"}},
		{redlock.WithLogger(nil), []string{"WithLogger(nil)"}},
		{redlock.WithDialer(nil), []string{"WithDialer(nil)"}},
		{redlock.WithTLSConfig(nil), []string{"WithTLSConfig(nil)"}},
		{nil, []string{"option 2 is nil"}},
	} {
		t.Run(fmt.Sprint(test.says), func(t *testing.T) {
			_, err := redlock.New(threeNodes, redlock.WithTTL(time.Second), test.opt)
			refused(t, err, test.says...)
		})
	}
}

func TestAllOptionsThatAreWrongAreNamedTogether(t *testing.T) {
	_, err := redlock.New(threeNodes, redlock.WithNodeTimeout(-1), redlock.WithClock(nil), redlock.WithOwner("\n"))
	require.ErrorIs(t, err, redlock.ErrConfig)
	for _, says := range []string{"WithNodeTimeout(-1ns)", "WithClock(nil)", "WithOwner("} {
		require.ErrorContains(t, err, says)
	}
	require.NotContains(t, err.Error(), "\n")
}

func TestNodeListsThatMakeNoSenseAreRefused(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("redis%d:6379", i)
	}
	for _, test := range []struct {
		addrs []string
		says  []string
	}{
		{nil, []string{"no nodes"}},
		{many[:2], []string{"2 nodes", "even", "odd"}},
		{many[:4], []string{"4 nodes"}},
		{many[:64], []string{"64 nodes"}},
		{many, []string{"65 nodes", "63"}},
		{[]string{"a:1", "b:1", "a:1"}, []string{"nodes 1 and 3 are the same", "a:1"}},
		{[]string{"a:1", "redis://a:1", "b:1"}, []string{"nodes 1 and 2 are the same"}},
		{[]string{"a:1", "redis://user:secret@a:1/2", "b:1"}, []string{"nodes 1 and 2 are the same"}},
		{[]string{"a:1", "", "c:1"}, []string{"node 2"}},
		{[]string{"a:1", "b:1", "http://c:1"}, []string{"node 3", "http"}},
	} {
		t.Run(fmt.Sprint(test.says), func(t *testing.T) {
			_, err := redlock.New(test.addrs)
			refused(t, err, test.says...)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	l, err := redlock.New(many[:63])
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestAnAddressWithoutEncryptionIsRefusedBesideATLSConfig(t *testing.T) {
	_, err := redlock.New([]string{"redis://redis1:6379"}, redlock.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS13}))
	refused(t, err, "node 1", "TLS")
}

func TestNamesThatMakeNoSenseAreRefused(t *testing.T) {
	many := make([]string, 129)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, test := range []struct {
		names []string
		says  []string
	}{
		{[]string{""}, []string{"empty name"}},
		{[]string{"a", ""}, []string{"empty name"}},
		{nil, []string{"0 names"}},
		{many, []string{"129 names", "128"}},
		{[]string{strings.Repeat("n", 1024)}, []string{"nnn", "1024"}},
		{[]string{"edlock:fence:a"}, []string{`"edlock:fence:a"`, "reserved"}},
		{[]string{"edlock:"}, []string{"reserved"}},
	} {
		t.Run(fmt.Sprint(test.says), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 1)
				l := coldLocker(t, c, redlock.WithKeyPrefix("r"))
				_, err := l.TryAcquireAll(t.Context(), test.names)
				refused(t, err, test.says...)
				_, err = l.AcquireAll(t.Context(), test.names)
				refused(t, err, test.says...)
				if len(test.names) == 1 {
					_, err = l.Acquire(t.Context(), test.names[0])
					refused(t, err, test.says...)
					refused(t, l.Do(t.Context(), test.names[0], nil), test.says...)
				}
				for _, n := range commands(c) {
					require.Zero(t, n)
				}
				require.Zero(t, c.Node(0).Connections())
			})
		})
	}
}

func TestNamesAtTheLimitsAreAccepted(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := coldLocker(t, c)
		many := make([]string, 128)
		for i := range many {
			many[i] = fmt.Sprintf("%d %s", i, strings.Repeat("n", 1000))
		}
		for _, names := range [][]string{
			{strings.Repeat("n", 1024)},
			{"Redlock:a"},
			{"redlock"},
			{" "},
			{"\x00\xff\r\n"},
			{"ключ"},
			many,
			append(many, many...),
		} {
			k, err := l.TryAcquireAll(t.Context(), names)
			require.NoError(t, err)
			requireHolders(t, c, k, 1)
			require.NoError(t, k.Release(t.Context()))
			requireFree(t, c, names...)
		}
	})
}

func TestALockOptionOfNewIsTheDefaultAndMayBeOverridden(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c, redlock.WithTTL(time.Minute), redlock.WithFencing(true))
		ttl := func() time.Duration {
			_, ttl, _ := c.Node(0).Get(job)
			return ttl
		}
		k := acquired(t, l, job)
		require.Equal(t, time.Minute, ttl())
		require.NotZero(t, k.FencingToken())
		require.NoError(t, k.Release(t.Context()))

		k = acquired(t, l, job, redlock.WithTTL(time.Second), redlock.WithFencing(false))
		require.Equal(t, time.Second, ttl())
		require.Zero(t, k.FencingToken())
		require.NoError(t, k.Release(t.Context()))

		k = acquired(t, l, job, redlock.WithTTL(time.Second), redlock.WithTTL(2*time.Second))
		require.Equal(t, 2*time.Second, ttl(), "the last one counts")
		require.NoError(t, k.Release(t.Context()))

		acquired(t, l, job)
		require.Equal(t, time.Minute, ttl(), "the default is what it was")
	})
}

func TestDefaultsAreWhatTheyAreSaidToBe(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		require.Equal(t, 10*time.Second-100*time.Millisecond-2*time.Millisecond, k.Validity())
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%s:%d", host, os.Getpid()), k.Owner())
		before := commands(c)
		require.Equal(t, []string{job}, c.Node(0).Keys(), "no prefix, no counter")
		time.Sleep(9 * time.Second)
		require.Equal(t, before, commands(c), "no renewal")
	})
}

func TestTheKeyIsThePrefixAndTheName(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c, redlock.WithKeyPrefix("app:locks:"))
		k := acquired(t, l, job)
		require.Equal(t, job, k.Name())
		require.Equal(t, map[string]int{k.Token(): 1}, c.Holders("app:locks:job"))
		requireFree(t, c, job)
		_, err := l.TryAcquire(t.Context(), job)
		require.Equal(t, []string{job}, requireQuorumError(t, err).Held)
	})
}

func TestAnOwnerMayBeEmpty(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 1), redlock.WithOwner(""))
		k := acquired(t, l, job)
		require.Empty(t, k.Owner())
		require.NoError(t, k.Release(t.Context()))
	})
}

func TestTheOwnerComesBackAsItWas(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		for _, owner := range []string{"a.b.c", "\u00fcnicode \u2603", strings.Repeat("o", 128), "."} {
			l := coldLocker(t, newCluster(t, 1), redlock.WithOwner(owner))
			require.Equal(t, owner, acquired(t, l, job).Owner())
		}
	})
}

// A guard protects only locks that it outlasts, kept by a renewal or a minimum
// hold.
func TestALockThatOutlastsTheRestartGuardIsRefused(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		time.Sleep(time.Hour)
		l := coldLocker(t, c, redlock.WithRestartGuard(time.Minute))
		for says, opt := range map[string]redlock.LockOption{
			"WithTTL(1m0.001s)":   redlock.WithTTL(time.Minute + time.Millisecond),
			"WithMinHold(1m0.5s)": redlock.WithMinHold(time.Minute + 500*time.Millisecond),
		} {
			_, err := l.TryAcquire(t.Context(), job, opt)
			refused(t, err, "WithRestartGuard(1m0s)", says)
			byDefault := coldLocker(t, c, redlock.WithRestartGuard(time.Minute), opt)
			_, err = byDefault.Resume(t.Context(), []string{job}, "token")
			refused(t, err, "WithRestartGuard(1m0s)", says)
		}
		acquired(t, l, job, redlock.WithTTL(time.Minute), redlock.WithMinHold(time.Minute))
	})
}

func somePools(t *testing.T, c *redlocktest.Cluster, monotonic clock.Clock, opts ...pool.Option) []*pool.Pool {
	t.Helper()
	pools := make([]*pool.Pool, c.Len())
	for i, addr := range c.Addrs() {
		var err error
		pools[i], err = pool.New(addr, append(opts, pool.WithDialer(c.Dial), pool.WithClock(monotonic))...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pools[i].Close()) })
	}
	return pools
}

func TestALockerOnGivenPoolsLeavesThemOpen(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		monotonic := clock.Monotonic()
		pools := somePools(t, c, monotonic)
		for range 2 {
			l, err := redlock.NewWithPools(pools, redlock.WithClock(monotonic))
			require.NoError(t, err)
			k := acquired(t, l, job)
			requireHolders(t, c, k, 3)
			require.NoError(t, k.Release(t.Context()))
			require.NoError(t, l.Close())
		}
		require.Equal(t, pool.Up, pools[0].Stat().State)
	})
}

func TestPoolsThatMakeNoSenseAreRefused(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		pools := somePools(t, newCluster(t, 4), clock.Monotonic())
		redigo := &redis.Pool{}
		wrapped := func(name string) *pool.Pool {
			p, err := pool.Wrap(name, redigo)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.Close()) })
			return p
		}
		_, err := redlock.NewWithPools(nil)
		refused(t, err, "no nodes")
		_, err = redlock.NewWithPools(pools)
		refused(t, err, "4 nodes")
		_, err = redlock.NewWithPools([]*pool.Pool{pools[0], nil, pools[1]})
		refused(t, err, "node 2: nil pool")
		_, err = redlock.NewWithPools([]*pool.Pool{pools[0], pools[1], pools[0]})
		refused(t, err, "nodes 1 and 3 are the same")
		_, err = redlock.NewWithPools([]*pool.Pool{wrapped("a"), wrapped("b"), wrapped("a")})
		refused(t, err, "nodes 1 and 3 are the same: a")
	})
}

func TestOptionsThatBelongToThePoolsAreRefusedBesideThem(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		pools := somePools(t, c, clock.Monotonic())
		for name, opt := range map[string]redlock.Option{
			"WithNodeTimeout":  redlock.WithNodeTimeout(time.Second),
			"WithRestartGuard": redlock.WithRestartGuard(time.Second),
			"WithDialer":       redlock.WithDialer(c.Dial),
			"WithDialOptions":  redlock.WithDialOptions(redis.DialDatabase(1)),
			"WithTLSConfig":    redlock.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS13}),
		} {
			_, err := redlock.NewWithPools(pools, opt)
			refused(t, err, name)
		}
	})
}

// Nodes may all be down when the Locker is made.
func TestNewDoesNotConnect(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		each(c, upTo(3), (*redlocktest.Node).Stop)
		l := coldLocker(t, c)
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
		each(c, upTo(3), func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
		_, err = l.Acquire(t.Context(), job)
		require.NoError(t, err)
	})
}

func TestTheRestartGuardKeepsAFreshNodeFromGranting(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		time.Sleep(time.Minute)
		l := newLocker(t, c, redlock.WithRestartGuard(30*time.Second))
		k := acquired(t, l, job, redlock.WithTTL(30*time.Second))
		each(c, upTo(2), func(n *redlocktest.Node) { require.NoError(t, n.RestartEmpty()) })
		time.Sleep(time.Second)

		_, err := l.TryAcquire(t.Context(), "other")
		requireOutcome(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, pool.ErrRestarted)
		requireFree(t, c, "other")
		requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
		requireFree(t, c, job)

		time.Sleep(30 * time.Second)
		acquired(t, l, "other")
	})
}

func TestDialOptionsReachTheNodes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l, err := redlock.New(c.Addrs(), redlock.WithClock(clock.Monotonic()),
			redlock.WithDialOptions(redis.DialContextFunc(c.Dial)))
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		acquired(t, l, job)
	})
}
