package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

const (
	redsyncs  = "a value as redsync makes them=="
	forbidden = "NOPERM this user has no permissions to access one of the channels used as arguments"

	roundTrip = time.Millisecond
	// soon is a few round trips: far below any poll interval or TTL here.
	soon = 20 * roundTrip
)

// slowPoll makes a missed announcement show.
var slowPoll = redlock.WithRetryDelay(10*time.Second, 20*time.Second)

// distant gives every command a round trip.
func distant(c *redlocktest.Cluster) {
	each(c, upTo(c.Len()), func(n *redlocktest.Node) { n.SetReplyDelay(roundTrip) })
}

// A grant is a lock that a waiter got, and when.
type grant struct {
	*redlock.Lock
	at  time.Time
	err error
}

// wait calls Acquire, for the job, on another goroutine.
func wait(ctx context.Context, l *redlock.Locker, opts ...redlock.LockOption) <-chan grant {
	got := make(chan grant, 1)
	go func() {
		k, err := l.Acquire(ctx, job, opts...)
		got <- grant{k, time.Now(), err}
	}()
	return got
}

// requireGrant checks that a waiter gets the lock within d of since.
func requireGrant(t *testing.T, got <-chan grant, since time.Time, d time.Duration) *redlock.Lock {
	t.Helper()
	g := <-got
	require.NoError(t, g.err)
	require.LessOrEqual(t, g.at.Sub(since), d)
	return g.Lock
}

// announce publishes a notice of release by hand, on the numbered nodes.
func announce(t *testing.T, c *redlocktest.Cluster, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		conn, err := c.Dial(t.Context(), "tcp", c.Node(i).Addr())
		require.NoError(t, err)
		r := redis.NewConn(conn, 0, 0)
		require.NoError(t, r.Send("PUBLISH", "redlock:released:"+job, ""))
		require.NoError(t, r.Flush())
		synctest.Wait()
		require.NoError(t, r.Close())
	}
}

// held returns a lock that another Locker holds for an hour.
func held(t *testing.T, c *redlocktest.Cluster) *redlock.Lock {
	t.Helper()
	return acquired(t, newLocker(t, c), job, redlock.WithTTL(time.Hour))
}

// release releases the lock and returns when that was.
func release(t *testing.T, k *redlock.Lock) time.Time {
	t.Helper()
	at := time.Now()
	require.NoError(t, k.Release(t.Context()))
	return at
}

func sum(counts []int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

func TestNoReleaseIsMissed(t *testing.T) {
	const bubbles = 4
	races := 240
	if testing.Short() {
		races = 80
	}
	for i := range bubbles {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 1+i/(bubbles-1)*2) // a node costs most of the time
				holder, l := newLocker(t, c), newLocker(t, c, slowPoll)
				distant(c)
				longest := time.Duration(0)
				for range races / bubbles {
					k := acquired(t, holder, job, redlock.WithTTL(time.Hour))
					got := wait(t.Context(), l)
					time.Sleep(rand.N(6 * roundTrip))
					since := release(t, k).Add(roundTrip)
					g := <-got
					require.NoError(t, g.err)
					longest = max(longest, g.at.Sub(since))
					release(t, g.Lock)
					time.Sleep(rand.N(3 * roundTrip)) // its subscription may still be there
				}
				assert.LessOrEqual(t, longest, soon)
			})
		})
	}
}

func TestAWaiterIsQuietWhileItCanHear(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		k := acquired(t, newLocker(t, c), job, redlock.WithAutoRenew(true))
		l := newLocker(t, c)
		distant(c)
		before := calls(c)
		got := wait(t.Context(), l)
		const minutes = 3
		time.Sleep(minutes * time.Minute)
		for i, n := range calls(c) {
			assert.Less(t, n-before[i], minutes*60*2, "renewals included; polling would be ten times that")
		}
		requireGrant(t, got, release(t, k), soon)
	})
}

func TestAWaiterPollsWhatItCannotHear(t *testing.T) {
	const shortest, longest = 100 * time.Millisecond, 150 * time.Millisecond
	const poll = longest + soon
	cases := map[string]struct {
		prepare func(t *testing.T, c *redlocktest.Cluster) (free func() time.Time)
	}{
		"forbidden": {func(t *testing.T, c *redlocktest.Cluster) func() time.Time {
			k := held(t, c)
			each(c, upTo(5), func(n *redlocktest.Node) { n.SetError(forbidden, "SUBSCRIBE") })
			return func() time.Time { return release(t, k) }
		}},
		"fewer than a quorum": {func(t *testing.T, c *redlocktest.Cluster) func() time.Time {
			k := held(t, c)
			each(c, upTo(3), func(n *redlocktest.Node) { n.SetError(forbidden, "SUBSCRIBE") })
			return func() time.Time { return release(t, k) }
		}},
		"some forbid and one answers nothing": {func(t *testing.T, c *redlocktest.Cluster) func() time.Time {
			k := held(t, c)
			each(c, upTo(2), func(n *redlocktest.Node) { n.SetError(forbidden, "SUBSCRIBE") })
			c.Node(4).Hang()
			return func() time.Time { return release(t, k) }
		}},
		"another library": {func(_ *testing.T, c *redlocktest.Cluster) func() time.Time {
			each(c, upTo(5), func(n *redlocktest.Node) { n.Set(job, redsyncs, time.Hour) })
			return func() time.Time {
				each(c, upTo(5), func(n *redlocktest.Node) { n.Delete(job) })
				return time.Now()
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				for _, pause := range []time.Duration{10 * roundTrip, 200 * time.Millisecond, 5 * time.Second} {
					c := newCluster(t, 5)
					l := newLocker(t, c, redlock.WithRetryDelay(shortest, longest))
					free := tc.prepare(t, c)
					distant(c)
					before := sum(calls(c))
					got := wait(t.Context(), l)
					time.Sleep(pause)
					assert.LessOrEqual(t, sum(calls(c))-before, (5+2)*(int(pause/shortest)+4),
						"an attempt, and the undoing on those that answered late")
					requireGrant(t, got, free(), poll)
				}
			})
		})
	}
}

func TestTheEndOfACrashedHolderIsNoticed(t *testing.T) {
	const ttl = 2 * time.Second
	t.Run("in another process", func(t *testing.T) {
		synctest.Test(parallel(t), func(t *testing.T) {
			c := newCluster(t, 3)
			l := newLocker(t, c, slowPoll)
			start := time.Now()
			acquired(t, newLocker(t, c), job, redlock.WithTTL(ttl))
			requireGrant(t, wait(t.Context(), l), start, ttl+soon)
		})
	})
	t.Run("in this one", func(t *testing.T) {
		synctest.Test(parallel(t), func(t *testing.T) {
			c := newCluster(t, 3)
			l := newLocker(t, c, slowPoll)
			start := time.Now()
			acquired(t, newLocker(t, c), job, redlock.WithTTL(ttl))
			// Nobody announces anything.
			first := wait(t.Context(), l, redlock.WithTTL(ttl))
			time.Sleep(time.Second)
			second := wait(t.Context(), l)
			requireGrant(t, first, start, ttl+soon) // and is forgotten
			requireGrant(t, second, start, 2*ttl+2*soon)
		})
	})
}

func TestForgedNoticesCostAnAttemptEach(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		k := held(t, c)
		l := newLocker(t, c, slowPoll)
		distant(c)
		got := wait(t.Context(), l)
		time.Sleep(time.Second)
		before := sum(calls(c))
		const forged = 50
		for i := range forged {
			announce(t, c, upTo(5)[:1+i%5]...) // some are duplicates
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, sum(calls(c))-before, 2*5*forged)
		requireGrant(t, got, release(t, k), soon)
	})
}

func TestASubscriptionThatIsLostIsMadeAgain(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		for _, after := range []time.Duration{0, roundTrip, time.Second} {
			c := newCluster(t, 5)
			holder := newLocker(t, c)
			l := newLocker(t, c, redlock.WithRetryDelay(time.Second, time.Second))
			distant(c)
			k := acquired(t, holder, job, redlock.WithTTL(time.Hour))
			got := wait(t.Context(), l)
			for range 5 {
				time.Sleep(time.Second)
				each(c, upTo(5), (*redlocktest.Node).DropConnections)
			}
			time.Sleep(after)
			since := time.Now()
			_ = k.Release(t.Context())                 // its own connections were dropped, too
			requireGrant(t, got, since, 2*time.Second) // a release in that moment may be found by polling
		}
	})
}

// lead returns the node that contenders for the job ask first.
func lead(t *testing.T, c *redlocktest.Cluster) int {
	t.Helper()
	for range 10 {
		before := calls(c)
		announce(t, c, upTo(c.Len())...)
		time.Sleep(soon)
		var asked []int
		for i, n := range calls(c) {
			if n > before[i] {
				asked = append(asked, i)
			}
		}
		if len(asked) == 1 {
			return asked[0]
		}
		time.Sleep(soon) // it polled just then, or asks all nodes after so many announcements
	}
	require.Fail(t, "no node is asked first")
	return -1
}

func TestATroubledLeadingNodeKeepsNobodyOut(t *testing.T) {
	troubles := map[string]struct {
		begin func(n *redlocktest.Node)
		bound time.Duration
	}{
		"hung":      {func(n *redlocktest.Node) { n.Hang() }, soon},
		"down":      {func(n *redlocktest.Node) { n.Stop() }, soon},
		"restarted": {func(n *redlocktest.Node) { _ = n.Restart() }, soon},
		"emptied":   {func(n *redlocktest.Node) { _ = n.RestartEmpty() }, soon},
		"mute":      {func(n *redlocktest.Node) { n.DropReplies(true) }, soon},
		"a dead vote": {func(n *redlocktest.Node) {
			n.Set(job, "0123456789012345678901.a dead owner", time.Hour)
		}, redlock.DefaultMaxRetryDelay + soon},
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				for _, pause := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second} {
					c := newCluster(t, 5)
					k := held(t, c)
					l := newLocker(t, c)
					distant(c)
					got := wait(t.Context(), l)
					time.Sleep(time.Second)
					n := c.Node(lead(t, c))
					trouble.begin(n)
					time.Sleep(pause)
					requireGrant(t, got, release(t, k), trouble.bound)
					n.Resume()
				}
			})
		})
	}
}

// Announcements must not keep a waiter with the leading node for ever.
func TestNoticesDoNotKeepAWaiterFromTheOtherNodes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		k := held(t, c)
		l := newLocker(t, c)
		distant(c)
		got := wait(t.Context(), l)
		time.Sleep(time.Second)
		c.Node(lead(t, c)).Set(job, "0123456789012345678901.a dead owner", time.Hour)
		since := release(t, k)
		for len(got) == 0 && time.Since(since) < time.Minute {
			announce(t, c, upTo(5)...)
			time.Sleep(10 * time.Millisecond)
		}
		requireGrant(t, got, since, 2*redlock.DefaultMaxRetryDelay)
	})
}

func TestWaitingEndsAsItsOptionsSay(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		held(t, c)
		l := newLocker(t, c)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		head := wait(ctx, l)
		time.Sleep(time.Second)
		queued, stop := context.WithTimeoutCause(t.Context(), time.Second, errTest)
		defer stop()
		start := time.Now()
		g := <-wait(queued, l)
		requireEnded(t, g.err, queued)
		requireOutcome(t, g.err, nil)
		require.Equal(t, time.Second, g.at.Sub(start))
		g = <-head
		requireEnded(t, g.err, ctx)
		require.NotErrorIs(t, g.err, redlock.ErrNoQuorum)
		require.Equal(t, 59*time.Second, g.at.Sub(start))

		before := calls(c)
		g = <-wait(t.Context(), l, redlock.WithMaxAttempts(3))
		requireOutcome(t, g.err, redlock.ErrTaken)
		for i, n := range calls(c) {
			require.LessOrEqual(t, n-before[i], 6, "some attempts are undone")
		}
		time.Sleep(5 * time.Second)
		require.Zero(t, l.Lines())
	})
}

// Callers that queued up in an outage must not spend their tolerance one after
// another.
func TestTheOutageToleranceIsOfEachCaller(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		const tolerance = 2 * time.Second
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithOutageTolerance(tolerance))
		each(c, upTo(3), (*redlocktest.Node).Stop)
		starts := make([]time.Time, 10)
		gots := make([]<-chan grant, len(starts))
		for i := range gots {
			starts[i] = time.Now()
			gots[i] = wait(t.Context(), l)
			time.Sleep(100 * time.Millisecond)
		}
		for i, got := range gots {
			g := <-got
			requireOutcome(t, g.err, redlock.ErrNoQuorum)
			took := g.at.Sub(starts[i])
			assert.GreaterOrEqual(t, took, tolerance)
			assert.LessOrEqual(t, took, tolerance+time.Second)
		}
		// After an outage that ended, the next begins anew.
		each(c, upTo(3), func(n *redlocktest.Node) { _ = n.Restart() })
		time.Sleep(time.Second)
		k := held(t, c)
		got := wait(t.Context(), l)
		time.Sleep(time.Minute)
		each(c, upTo(3), (*redlocktest.Node).Stop)
		time.Sleep(tolerance / 2)
		each(c, upTo(3), func(n *redlocktest.Node) { _ = n.Restart() })
		time.Sleep(time.Minute)
		require.Empty(t, got)
		requireGrant(t, got, release(t, k), redlock.DefaultMaxRetryDelay+soon)
	})
}

func TestAWaiterThatGivesUpSendsNothingMore(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		start := time.Now()
		acquired(t, newLocker(t, c), job, redlock.WithTTL(2*time.Second))
		l := newLocker(t, c, slowPoll)
		first := wait(t.Context(), l, redlock.WithTTL(time.Hour))
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		second := wait(ctx, l)
		requireGrant(t, first, start, 2*time.Second+soon)
		time.Sleep(time.Second)
		before := calls(c)
		cancel()
		requireEnded(t, (<-second).err, ctx)
		require.Equal(t, before, calls(c))
	})
}

func TestACancelledLeadFirstAttemptAsksNobodyElse(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		held(t, c)
		l := newLocker(t, c, slowPoll)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(100 * time.Millisecond) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := wait(ctx, l)
		time.Sleep(time.Second)
		each(c, upTo(5), func(n *redlocktest.Node) { n.Delete(job) })
		before := calls(c)
		announce(t, c, 0, 1, 2)
		asked := func() (nodes int) {
			for i, n := range calls(c) {
				if n > before[i] {
					nodes++
				}
			}
			return nodes
		}
		for asked() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		requireEnded(t, (<-got).err, ctx)
		time.Sleep(time.Second)
		require.Equal(t, 1, asked())
		requireFree(t, c, job)
	})
}

func TestNothingIsLeftWhenTheLastWaiterLeaves(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		holder, l := newLocker(t, c), newLocker(t, c)
		connections := func() (n int) {
			synctest.Wait()
			each(c, upTo(3), func(node *redlocktest.Node) { n += node.Connections() })
			return n
		}
		before := connections()
		k := acquired(t, holder, job, redlock.WithTTL(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		var gots []<-chan grant
		for range 10 {
			gots = append(gots, wait(ctx, l))
		}
		time.Sleep(time.Minute)
		require.Equal(t, before+3, connections())
		require.Equal(t, 1, l.Lines())
		require.Equal(t, 9, l.Behind())
		release(t, k)
		time.Sleep(time.Second)
		cancel()
		for _, got := range gots {
			if g := <-got; g.err == nil {
				release(t, g.Lock)
			}
		}
		require.Zero(t, l.Lines())
		time.Sleep(10 * time.Second)
		require.Equal(t, before, connections())
	})
}

func TestCloseEndsEveryWaiter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		held(t, c)
		l := newLocker(t, c)
		var gots []<-chan grant
		for range 10 {
			gots = append(gots, wait(t.Context(), l))
		}
		time.Sleep(time.Second)
		c.Node(0).Hang()
		start := time.Now()
		require.NoError(t, l.Close())
		require.LessOrEqual(t, time.Since(start), 2*redlock.DefaultNodeTimeout)
		for _, got := range gots {
			g := <-got
			require.ErrorIs(t, g.err, redlock.ErrClosed)
			require.Equal(t, start, g.at)
		}
		require.Zero(t, l.Lines())
	})
}

func TestOverlappingSetsOfNamesDoNotDeadlock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		distant(c)
		names := []string{"a", "b", "c", "d", "e"}
		rounds := 10
		if testing.Short() {
			rounds = 3
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			l := newLocker(t, c)
			for range 4 {
				wg.Go(func() {
					for range rounds {
						mine := make([]string, 0, len(names))
						for _, i := range rand.Perm(len(names))[:1+rand.N(4)] {
							mine = append(mine, names[i])
						}
						k, err := l.AcquireAll(t.Context(), mine, redlock.WithTTL(time.Hour))
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(rand.N(5 * roundTrip))
						assert.NoError(t, k.Release(t.Context()))
					}
				})
			}
		}
		wg.Wait()
		assert.Less(t, time.Since(start), time.Duration(12*rounds)*200*time.Millisecond)
		requireFree(t, c, names...)
	})
}

func TestAContextThatEndsInMidAttemptSaysWhatTheOneBeforeMet(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		for i := range 5 {
			c.Node(i).Set(job, "somebody else's", time.Hour)
			c.Node(i).SetReplyDelay(50 * time.Millisecond)
		}
		for d := 200 * time.Millisecond; d < 400*time.Millisecond; d += 7 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			_, err := l.Acquire(ctx, job, redlock.WithRetryDelay(time.Millisecond, 2*time.Millisecond))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, "after %v", d)
			require.ErrorIs(t, err, redlock.ErrTaken, "after %v", d)
		}
	})
}

// The retry delay is about holders that announce nothing.
func TestTheRetryDelayDoesNotDelayTheEndOfAnOutage(t *testing.T) {
	const slowly = time.Minute
	for name, test := range map[string]struct {
		back bool
		want error
	}{
		"when the nodes are back":        {true, nil},
		"when the tolerance has run out": {false, redlock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				each(c, upTo(3), (*redlocktest.Node).Stop)
				start := time.Now()
				got := wait(t.Context(), l, redlock.WithRetryDelay(slowly, slowly))
				time.Sleep(200 * time.Millisecond)
				if test.back {
					each(c, upTo(3), func(n *redlocktest.Node) { require.NoError(t, n.Restart()) })
				}
				g := <-got
				require.ErrorIs(t, g.err, test.want)
				require.LessOrEqual(t, g.at.Sub(start), redlock.DefaultOutageTolerance+redlock.DefaultNodeTimeout)
			})
		})
	}
}

// One refusal, and nothing heard of the others for a few round trips, is no
// proof that anybody holds the lock.
func TestARefusalInAnOutageIsNotContention(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		distant(c)
		warm(t, l)
		c.Node(0).Set(job, "0123456789012345678901.a dead owner", time.Hour)
		each(c, []int{1, 2, 3, 4}, (*redlocktest.Node).Hang)
		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
	})
}

// The leading node may hold the vote of somebody who has died.
func TestTheLastAttemptAsksAllNodes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		k := held(t, c)
		distant(c)
		ctx, cancel := context.WithCancel(t.Context())
		probe := wait(ctx, newLocker(t, c), slowPoll)
		time.Sleep(time.Second)
		leading := lead(t, c)
		cancel()
		<-probe
		got := wait(t.Context(), newLocker(t, c), slowPoll, redlock.WithMaxAttempts(6))
		time.Sleep(time.Second)
		require.Empty(t, got, "fewer attempts are made before an announcement")
		for i := range 5 {
			c.Node(i).Delete(k.Name())
		}
		c.Node(leading).Set(k.Name(), "0123456789012345678901.a dead owner", time.Hour)
		for range 6 {
			announce(t, c, upTo(5)...)
			time.Sleep(soon)
		}
		g := <-got
		require.NoError(t, g.err, "four of five nodes are free")
	})
}

// Nor does a vote that nobody undoes, on a minority, hide when the lock is free.
func TestTheEndOfTheTTLOnAQuorumIsWhatCounts(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, slowPoll)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.Set(job, "0123456789012345678901.a dead owner", time.Hour) })
		acquired(t, newLocker(t, c), job, redlock.WithTTL(2*time.Second)) // and its owner crashes
		each(c, []int{3, 4}, func(n *redlocktest.Node) { n.SetReplyDelay(time.Millisecond) })
		requireGrant(t, wait(t.Context(), l), time.Now(), 3*time.Second)
	})
}

// Redis says 0 in the last millisecond of a TTL.
func TestARefusalWithNothingLeftOfTheTTLIsTriedAgainAtOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		tap := newWiretap(c)
		l := newLocker(t, c, redlock.WithDialer(tap.Dial), slowPoll)
		acquired(t, newLocker(t, c), job, redlock.WithTTL(10*time.Millisecond))
		left := regexp.MustCompile(`\*3\r\n:\d+\r\n`)
		tap.onReply(func(_ string, reply []byte) []byte { return left.ReplaceAll(reply, []byte("*3\r\n:0\r\n")) })
		requireGrant(t, wait(t.Context(), l), time.Now(), 100*time.Millisecond)
	})
}

func TestTheLongestRetryDelayIsNoBusyLoop(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		held(t, c)
		l := newLocker(t, c)
		distant(c)
		before := sum(calls(c))
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, job, redlock.WithRetryDelay(clock.Longest, clock.Longest))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, sum(calls(c))-before, 20)
	})
}
