package redlock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// A watchLog takes the notices of one watch as they come.
type watchLog struct {
	mu      sync.Mutex
	notices []redlock.Notice
	closed  bool
}

// watching begins to watch; the watch ends with the test.
func watching(t *testing.T, l *redlock.Locker, pattern string, opts ...redlock.WatchOption) *watchLog {
	t.Helper()
	notices, err := l.Watch(t.Context(), pattern, opts...)
	require.NoError(t, err)
	w := &watchLog{}
	go func() {
		for n := range notices {
			w.mu.Lock()
			w.notices = append(w.notices, n)
			w.mu.Unlock()
		}
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
	}()
	synctest.Wait()
	return w
}

// all returns the notices since the last time.
func (w *watchLog) all() []redlock.Notice {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	notices := w.notices
	w.notices = nil
	return notices
}

// said returns them in short.
func (w *watchLog) said() []string {
	var said []string
	for _, n := range w.all() {
		if n.Name == "" {
			said = append(said, n.Kind.String())
		} else {
			said = append(said, n.Kind.String()+" "+n.Name)
		}
	}
	return said
}

// prompt is longer than a notice takes that was announced, and much shorter than
// the pause between two listings.
const prompt = 100 * time.Millisecond

func TestWatchTellsTheLifeOfALockAsItIsAnnounced(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithEvents(true), redlock.WithOwner("me"))
		acquired(t, l, "before")
		synctest.Wait()
		w := watching(t, newLocker(t, c), "*o*", redlock.WithLookEvery(time.Hour))
		require.Equal(t, []string{"found before"}, w.said())

		k := acquired(t, l, job, redlock.WithTTL(time.Minute))
		acquired(t, l, "unseen")
		time.Sleep(prompt)
		notices := w.all()
		require.Len(t, notices, 1)
		n := notices[0]
		assert.Equal(t, redlock.NoticeAcquired, n.Kind)
		assert.Equal(t, job, n.Name)
		assert.Equal(t, "me", n.Owner)
		assert.InDelta(t, time.Minute, n.TTL, float64(prompt))
		assert.Equal(t, k.Token(), n.Status.Token)
		assert.NotContains(t, fmt.Sprintf("%v %+v", n, n), k.Token())

		time.Sleep(time.Second)
		require.NoError(t, k.Renew(t.Context()))
		time.Sleep(prompt)
		require.Equal(t, []string{"renewed job"}, w.said())
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(prompt)
		require.Equal(t, []string{"released job"}, w.said())

		k = acquired(t, l, job)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(prompt)
		require.Equal(t, []string{"acquired job", "released job"}, w.said(), "between two looks")
	})
}

// Every announcement is lost; the listings find out all the same.
func TestALostAnnouncementCostsDelayOnly(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetError("NOPERM", "PSUBSCRIBE") })
		w := watching(t, l, "job*", redlock.WithLookEvery(time.Second))
		k := acquired(t, l, job, redlock.WithTTL(time.Minute))
		time.Sleep(time.Second + prompt)
		require.Equal(t, []string{"acquired job"}, w.said())
		require.NoError(t, k.Renew(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, []string{"renewed job"}, w.said())
		require.NoError(t, k.Release(t.Context()))
		k = acquired(t, l, job, redlock.WithTTL(time.Minute))
		time.Sleep(time.Second)
		require.Equal(t, []string{"released job", "acquired job"}, w.said())
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, []string{"released job"}, w.said(), "it was gone before its time")
	})
}

func TestALockThatNobodyReleasedHasExpired(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithEvents(true))
		w := watching(t, l, "job*", redlock.WithLookEvery(time.Second))
		acquired(t, l, job, redlock.WithTTL(5*time.Second))
		time.Sleep(7 * time.Second)
		require.Equal(t, []string{"acquired job", "expired job"}, w.said())

		// The next holder comes at once.
		acquired(t, l, job, redlock.WithTTL(5*time.Second))
		time.Sleep(5*time.Second + prompt)
		acquired(t, l, job, redlock.WithTTL(time.Minute))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"acquired job", "expired job", "acquired job"}, w.said())
	})
}

func TestALockReleasedInTheLastMomentOfItsTTLHasNotExpired(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		w := watching(t, l, "job*", redlock.WithLookEvery(10*time.Second))
		k := acquired(t, l, job, redlock.WithTTL(10*time.Second+500*time.Millisecond), redlock.WithDriftFactor(0))
		time.Sleep(10*time.Second + 490*time.Millisecond)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"acquired job", "released job"}, w.said())
	})
}

func TestAMinimumHoldIsNoReasonToCallALockHeldOrExpired(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithEvents(true))
		w := watching(t, l, "job*", redlock.WithLookEvery(time.Second))
		k := acquired(t, l, job, redlock.WithMinHold(30*time.Second))
		time.Sleep(3*time.Second + 500*time.Millisecond) // not while all are listed
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(prompt)
		require.Equal(t, []string{"acquired job", "released job"}, w.said())
		time.Sleep(time.Minute)
		require.Empty(t, w.said())
	})
}

func TestALockThatIsHeldForTooLongIsStuckOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithEvents(true))
		w := watching(t, l, "job*", redlock.WithLookEvery(time.Second), redlock.WithStuckAfter(10*time.Second))
		acquired(t, l, job, redlock.WithTTL(time.Minute))
		time.Sleep(9 * time.Second)
		require.Equal(t, []string{"acquired job"}, w.said())
		time.Sleep(2 * time.Second)
		notices := w.all()
		require.Len(t, notices, 1)
		assert.Equal(t, redlock.NoticeStuck, notices[0].Kind)
		assert.GreaterOrEqual(t, notices[0].Held, 10*time.Second)
		time.Sleep(20 * time.Second)
		require.Empty(t, w.said())
	})
}

func TestSplitVotesAndLostMajoritiesAreToldWhenTheyLast(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		w := watching(t, l, "*", redlock.WithLookEvery(250*time.Millisecond))
		_ = w.said()
		for i, token := range []string{"a", "a", "b", "b", "c"} {
			c.Node(i).Set("split", token, 4*time.Second)
		}
		k := acquired(t, l, "lost", redlock.WithTTL(7*time.Second))
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		each(c, []int{0, 1, 2}, func(n *redlocktest.Node) { n.Delete("lost") })
		require.Equal(t, []string{"acquired lost"}, w.said())
		time.Sleep(800 * time.Millisecond)
		require.Equal(t, []string{"split split"}, w.said())
		time.Sleep(800 * time.Millisecond)
		require.Equal(t, []string{"lost majority lost"}, w.said())
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"expired split"}, w.said())
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"expired lost"}, w.said())
		require.Error(t, k.Err())
	})
}

func TestWhatPassesIsNoNotice(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		w := watching(t, l, "job*", redlock.WithLookEvery(250*time.Millisecond))
		c.Node(0).Set(job, "an attempt under way", time.Minute)
		c.Node(1).Set(job, "another", time.Minute)
		time.Sleep(500 * time.Millisecond)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.Delete(job) })
		time.Sleep(3 * time.Second)
		require.Empty(t, w.said())

		// The last leaf of a lock hangs on for a little longer than the rest.
		each(c, upTo(4), func(n *redlocktest.Node) { n.Set(job, "a lock", 2*time.Second) })
		c.Node(4).Set(job, "a lock", 2500*time.Millisecond)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"acquired job", "expired job"}, w.said())
	})
}

func TestAWatchIsBlindWithoutAQuorum(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithTTL(time.Hour))
		acquired(t, l, job)
		synctest.Wait()
		w := watching(t, l, "job*", redlock.WithLookEvery(time.Second))
		c.Node(0).Stop()
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"found job"}, w.said(), "two of three see enough")
		c.Node(1).Stop()
		time.Sleep(5 * time.Second)
		notices := w.all()
		require.Len(t, notices, 1)
		assert.Equal(t, redlock.NoticeBlind, notices[0].Kind)
		require.ErrorIs(t, notices[0].Err, redlock.ErrNoQuorum)
		require.NoError(t, c.Node(0).Restart())
		require.NoError(t, c.Node(1).Restart())
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"sighted"}, w.said(), "the lock was there all the time")
	})
}

func TestASlowConsumerHoldsUpItsOwnWatchAndNothingElse(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c, redlock.WithEvents(true))
		notices, err := l.Watch(t.Context(), "job*", redlock.WithLookEvery(time.Second))
		require.NoError(t, err)
		for i := range 50 {
			k := acquired(t, l, fmt.Sprintf("job %d", i))
			require.NoError(t, k.Release(t.Context()))
		}
		acquired(t, l, job, redlock.WithTTL(time.Hour))
		time.Sleep(time.Minute)
		for n := range notices { // what it finds now
			if n.Name == job {
				assert.Equal(t, redlock.NoticeAcquired, n.Kind)
				break
			}
		}
		require.NoError(t, l.Close(), "nobody receives, and Close does not wait for that")
		_, open := <-notices
		assert.False(t, open)
	})
}

func TestAWatchEndsWithItsContextAndWithTheLocker(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		notices, err := l.Watch(ctx, "")
		require.NoError(t, err)
		cancel()
		for range notices {
			continue // until it is closed
		}
		_, err = l.Watch(ctx, "")
		require.ErrorIs(t, err, context.Canceled)

		w := watching(t, l, "")
		require.NoError(t, l.Close())
		_ = w.all()
		assert.True(t, w.closed)
		_, err = l.Watch(t.Context(), "")
		requireOutcome(t, err, redlock.ErrClosed)
		for _, o := range []redlock.WatchOption{nil, redlock.WithLookEvery(0), redlock.WithStuckAfter(-1)} {
			_, err = l.Watch(t.Context(), "", o)
			requireOutcome(t, err, redlock.ErrConfig)
		}
	})
}

func TestACheckIsNoNotice(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		w := watching(t, l, "", redlock.WithLookEvery(time.Second))
		_ = w.said()
		_ = checked(t, l, "")
		time.Sleep(3 * time.Second)
		require.Empty(t, w.said())
	})
}

// The owner label names a process and not a lock: what was announced of the
// lock before says nothing of the next.
func TestAReleaseThatIsHeardLateIsNotThatOfTheNextLock(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			l := newLocker(t, c, redlock.WithOwner("me"))
			k := acquired(t, l, job, redlock.WithTTL(time.Minute))
			notices, err := newLocker(t, c).Watch(t.Context(), "", redlock.WithLookEvery(50*time.Millisecond))
			require.NoError(t, err)
			require.Equal(t, redlock.NoticeFound, (<-notices).Kind)
			acquired(t, l, "another")
			time.Sleep(200 * time.Millisecond) // the watcher waits until that is taken
			require.NoError(t, k.Release(t.Context()))
			acquired(t, l, job, redlock.WithTTL(time.Minute))
			time.Sleep(200 * time.Millisecond)
			last := redlock.NoticeFound
			for enough := time.After(3 * time.Second); ; {
				select {
				case n := <-notices:
					if n.Name == job {
						last = n.Kind
					}
					continue
				case <-enough:
				}
				break
			}
			require.NotEqual(t, redlock.NoticeReleased, last)
		})
	}
}

func TestWhatIsAnnouncedOfImpossibleNamesIsNotLookedAt(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		var written atomic.Int64
		w := newLocker(t, c, redlock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := c.Dial(ctx, network, addr)
			return &byteCounter{conn, &written}, err
		}))
		watching(t, w, "", redlock.WithLookEvery(time.Hour))
		before := written.Load()
		conn, err := c.Dial(t.Context(), "tcp", c.Addrs()[0])
		require.NoError(t, err)
		r := redis.NewConn(conn, 0, 0)
		for i := range 10 {
			_, err = r.Do("PUBLISH", fmt.Sprint("redlock:renewed:", i, strings.Repeat("n", 900_000)), "x")
			require.NoError(t, err)
		}
		require.NoError(t, r.Close())
		time.Sleep(time.Second)
		require.Less(t, written.Load()-before, int64(10_000))
	})
}

// byteCounter counts what is written.
type byteCounter struct {
	net.Conn
	written *atomic.Int64
}

func (c *byteCounter) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p)))
	return c.Conn.Write(p)
}
