package redlock_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestAnotherProcessResumesAHeldLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		first := acquired(t, newLocker(t, c, redlock.WithOwner("web")), job)
		time.Sleep(4 * time.Second)

		second, err := newLocker(t, c).Resume(t.Context(), []string{job}, first.Token())
		require.NoError(t, err)
		require.Equal(t, first.Token(), second.Token())
		require.Equal(t, "web", second.Owner(), "the label is part of the token")
		require.Equal(t, 10*time.Second-102*time.Millisecond, second.Validity(), "resuming begins the TTL anew")

		time.Sleep(9 * time.Second)
		requireOutcome(t, first.Err(), redlock.ErrLost) // nobody told the first
		require.NoError(t, second.Renew(t.Context()))
		require.NoError(t, second.Release(t.Context()))
		synctest.Wait()
		for i := range 5 {
			require.Empty(t, c.Node(i).Keys())
		}
	})
}

func TestALockThatIsNotHeldUnderTheTokenIsNotResumed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		require.NoError(t, k.Release(t.Context()))
		synctest.Wait()
		_, err := l.Resume(t.Context(), []string{job}, k.Token())
		requireOutcome(t, err, redlock.ErrLost)
		require.Empty(t, c.Node(0).Keys(), "a lock that ended is not revived")

		other := acquired(t, l, job)
		_, err = l.Resume(t.Context(), []string{job}, k.Token())
		requireOutcome(t, err, redlock.ErrLost)
		require.Positive(t, other.Validity())
		require.NoError(t, other.Renew(t.Context()), "the holder is not disturbed")
		require.NoError(t, other.Release(t.Context()))
	})
}

func TestAResumeThatFailsLeavesTheLockToItsHolder(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithTTL(time.Minute))
		c.Node(0).Hang()
		c.Node(1).Hang()
		_, err := l.Resume(t.Context(), []string{job}, k.Token())
		requireOutcome(t, err, redlock.ErrNoQuorum)
		c.Node(0).Resume()
		c.Node(1).Resume()
		time.Sleep(5 * time.Second)
		require.Len(t, c.Holders(job), 1)
		require.NoError(t, k.Renew(t.Context()))
		require.NoError(t, k.Release(t.Context()))
	})
}

func TestAResumedLockHasAFencingTokenOfItsOwn(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c, redlock.WithFencing(true))
		first, err := l.AcquireAll(t.Context(), []string{"b", "a"})
		require.NoError(t, err)
		second, err := l.Resume(t.Context(), []string{"a", "b"}, first.Token(), redlock.WithAutoRenew(true))
		require.NoError(t, err)
		require.Greater(t, second.FencingToken(), first.FencingToken())
		time.Sleep(time.Minute)
		require.NoError(t, second.Err())
		require.NoError(t, second.Release(t.Context()))
		third := acquired(t, l, "a")
		require.Greater(t, third.FencingToken(), second.FencingToken())
		require.NoError(t, third.Release(t.Context()))
	})
}

func TestTokensThatMakeNoSenseAreRefused(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 1))
		for _, token := range []string{"", strings.Repeat("x", 257)} {
			_, err := l.Resume(t.Context(), []string{job}, token)
			requireOutcome(t, err, redlock.ErrConfig)
		}
	})
}

// The renewal of a Resume that was cancelled may still come to a quorum. By then
// the holder may have released the lock, and nothing must come back.
func TestAResumeThatWasCancelledRefillsNothing(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		k, other := acquired(t, newLocker(t, c), job), newLocker(t, c)
		synctest.Wait()
		c.Node(2).Delete(job)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetReplyDelay(100 * time.Millisecond) })

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := other.Resume(ctx, []string{job}, k.Token())
		requireOutcome(t, err, context.DeadlineExceeded)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(time.Second) // the replies to both have arrived
		requireFree(t, c, job)
	})
}

func TestAResumeThatGetsNoFencingNumberBringsNothingBack(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		k := acquired(t, newLocker(t, c), job, redlock.WithFencing(true))
		var lag atomic.Int64
		other := newLocker(t, c, redlock.WithDialer(lagging(t, c, &lag)))
		lag.Store(int64(100 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		_, err := other.Resume(ctx, []string{job}, k.Token(), redlock.WithFencing(true))
		requireOutcome(t, err, context.DeadlineExceeded)
		require.NoError(t, k.Release(t.Context()))
		requireFree(t, c, job)
		time.Sleep(time.Second) // what was on its way to the nodes arrives
		requireFree(t, c, job)
	})
}

// A command that waits for its node to be connected is not on its way yet: when
// the Resume has failed, what would change the lock must not go out any more.
func TestAResumeThatHasFailedChangesNothingAnyMore(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		k := acquired(t, newLocker(t, c), job)
		last, open := c.Addrs()[2], make(chan struct{})
		other := coldLocker(t, c, redlock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == last {
				<-open
			}
			return c.Dial(ctx, network, addr)
		}))
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetReplyDelay(20 * time.Millisecond) })
		before := c.Node(0).CountOf("EVALSHA")

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error)
		go func() {
			_, err := other.Resume(ctx, []string{job}, k.Token(), redlock.WithFencing(true))
			failed <- err
		}()
		for c.Node(0).CountOf("EVALSHA") < before+2 { // the renewal, and the draw of the number
			time.Sleep(time.Millisecond)
		}
		cancel()
		requireOutcome(t, <-failed, context.Canceled)
		close(open)
		time.Sleep(100 * time.Millisecond)
		require.Positive(t, c.Node(2).Connections(), "the last node is connected now")
		require.Equal(t, []string{job}, c.Node(2).Keys(), "the draw of the number must not have reached it")
	})
}

// A Resume can fail after its renewal: for want of a number, or because a node
// turns out to be there twice. What it has refilled by then could arrive after
// the holder's release.
func TestAResumeRefillsOnceItHasSucceededAndNotBefore(t *testing.T) {
	for name, patience := range map[string]time.Duration{"in time": time.Second, "too late": 150 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				k := acquired(t, newLocker(t, c), job, redlock.WithFencing(true))
				var lag atomic.Int64
				other := newLocker(t, c, redlock.WithDialer(lagging(t, c, &lag)))
				synctest.Wait()
				c.Node(2).Delete(job)
				lag.Store(int64(100 * time.Millisecond))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				resumed, err := other.Resume(ctx, []string{job}, k.Token(), redlock.WithFencing(true))
				if patience < time.Second {
					requireOutcome(t, err, context.DeadlineExceeded)
					require.NoError(t, k.Release(t.Context()))
					time.Sleep(time.Second) // what was on its way to the nodes arrives
					requireFree(t, c, job)
					return
				}
				require.NoError(t, err)
				time.Sleep(200 * time.Millisecond)
				requireHolders(t, c, resumed, 3)
				require.NoError(t, resumed.Release(t.Context()))
			})
		})
	}
}

// A node may hold a stray key of somebody else. Whether the lock is lost is then
// for the others to say, and not for that node together with one that is slow or
// fails.
func TestAResumeSaysLostOnlyOfALockThatIsLost(t *testing.T) {
	broken := []byte("-ERR something went wrong\r\n")
	for name, play := range map[string]struct {
		number func(reply []byte) []byte // what becomes of the second node's answer to the draw
		want   error
	}{
		"late": {number: func(reply []byte) []byte { time.Sleep(200 * time.Millisecond); return reply }},
		"fails": {
			number: func([]byte) []byte { return broken },
			want:   redlock.ErrNoQuorum,
		},
		"has lost it": {
			number: func([]byte) []byte { return []byte("*3\r\n:5000\r\n:0\r\n:1\r\n") },
			want:   redlock.ErrLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				k := acquired(t, newLocker(t, c), job, redlock.WithFencing(true))
				synctest.Wait()
				c.Node(0).Set(job, "stray", time.Minute)
				tap := newWiretap(c)
				other := newLocker(t, c, redlock.WithDialer(tap.Dial))
				synctest.Wait()
				second := c.Addrs()[1]
				tap.onReply(func(addr string, reply []byte) []byte {
					if draws := bytes.HasPrefix(reply, []byte(":")) && len(reply) > len(":1\r\n"); addr == second && draws {
						return play.number(reply)
					}
					return reply
				})
				resumed, err := other.Resume(t.Context(), []string{job}, k.Token(), redlock.WithFencing(true))
				if play.want == nil {
					require.NoError(t, err)
					require.NoError(t, resumed.Release(t.Context()))
					return
				}
				requireOutcome(t, err, play.want)
				require.NoError(t, k.Renew(t.Context()), "the lock stays with its holder")
				require.NoError(t, k.Release(t.Context()))
			})
		})
	}
}

// lagging dials connections on which what is written arrives late.
func lagging(t *testing.T, c *redlocktest.Cluster, lag *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := c.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l := &laggingConn{Conn: conn, lag: lag, closed: make(chan struct{}), sent: make(chan lateBytes, 1000)}
		go l.deliver()
		return l, nil
	}
}

type laggingConn struct {
	net.Conn
	lag    *atomic.Int64
	sent   chan lateBytes
	once   sync.Once
	closed chan struct{}
}

type lateBytes struct {
	at    time.Time
	bytes []byte
}

func (l *laggingConn) Write(p []byte) (int, error) {
	l.sent <- lateBytes{time.Now().Add(time.Duration(l.lag.Load())), bytes.Clone(p)}
	return len(p), nil
}

func (l *laggingConn) deliver() {
	for {
		select {
		case late := <-l.sent:
			time.Sleep(time.Until(late.at))
			_, _ = l.Conn.Write(late.bytes)
		case <-l.closed:
			return
		}
	}
}

func (l *laggingConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

func TestResumeOnALockerThatKnewNoNodeYetCountsAServerOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := &misdialled{Cluster: newCluster(t, 3)}
		k := acquired(t, newLocker(t, c.Cluster), job)
		synctest.Wait()
		c.Node(1).Delete(job)
		c.Node(2).Delete(job)
		acquired(t, newLocker(t, c.Cluster), job)
		c.wrong.Store(true)
		l := coldLocker(t, c.Cluster, redlock.WithDialer(c.Dial))
		_, err := l.Resume(t.Context(), []string{job}, k.Token())
		require.ErrorIs(t, err, redlock.ErrConfig)
	})
}

// A Resume that fails gives nobody a lock, and so nothing may renew it, however
// it failed: the name would be blocked for as long as the process lives.
func TestAResumeThatHasFailedRenewsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		spoil, mend func(*redlocktest.Node)
		want        error
	}{
		"cancelled": {
			func(n *redlocktest.Node) { n.SetReplyDelay(100 * time.Millisecond) },
			func(n *redlocktest.Node) { n.SetReplyDelay(0) },
			context.DeadlineExceeded,
		},
		"no quorum": {
			func(n *redlocktest.Node) { n.SetError("LOADING", "EVALSHA", "EVAL") },
			func(n *redlocktest.Node) { n.SetError("") },
			redlock.ErrNoQuorum,
		},
		"no number": {
			func(n *redlocktest.Node) { n.SetError("OOM command not allowed", "SET") },
			func(n *redlocktest.Node) { n.SetError("") },
			redlock.ErrNoQuorum,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				k, other := acquired(t, newLocker(t, c), job, redlock.WithFencing(true)), newLocker(t, c)
				each(c, []int{0, 1}, test.spoil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := other.Resume(ctx, []string{job}, k.Token(), redlock.WithAutoRenew(true), redlock.WithFencing(true))
				requireOutcome(t, err, test.want)
				each(c, []int{0, 1}, test.mend)
				time.Sleep(2 * redlock.DefaultTTL)
				requireFree(t, c, job)
			})
		})
	}
}

// That the nodes answered too late for the new holder says nothing about the
// lock, which a quorum has just renewed.
func TestAResumeThatComesTooLateHasNotLostTheLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		k, other := acquired(t, newLocker(t, c), job), newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetReplyDelay(150 * time.Millisecond) })
		_, err := other.Resume(t.Context(), []string{job}, k.Token(), redlock.WithTTL(100*time.Millisecond))
		requireOutcome(t, err, redlock.ErrNoQuorum)
		requireHolders(t, c, k, 3)
		require.Positive(t, k.Validity())
	})
}

func TestAResumedLockHasTheMinimumValidity(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetReplyDelay(200 * time.Millisecond) })
		_, err := l.Resume(t.Context(), []string{job}, k.Token(), redlock.WithTTL(time.Second), redlock.WithMinValidity(900*time.Millisecond))
		requireOutcome(t, err, redlock.ErrNoQuorum)
		_, err = l.Resume(t.Context(), []string{job}, k.Token(), redlock.WithTTL(time.Second), redlock.WithMinValidity(700*time.Millisecond))
		require.NoError(t, err)
	})
}

// Two that resume one lock at once have one token, so that it does not tell whom
// a node has given a number.
func TestTwoThatResumeALockAtOnceDoNotGetOneNumber(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		ahead := newBentClock()
		ahead.set(time.Hour) // the counters are past what the two propose
		k := acquired(t, newLocker(t, c, redlock.WithClock(ahead)), job, redlock.WithFencing(true))
		// The first node hears of one first, and the second of the other.
		lags := [2][3]int64{{1, 7, 100}, {6, 6, 100}} // milliseconds
		numbers := make(chan uint64, len(lags))
		for _, lag := range lags {
			byAddr := make(map[string]*atomic.Int64)
			for node, addr := range c.Addrs() {
				byAddr[addr] = new(atomic.Int64)
				byAddr[addr].Store(lag[node] * int64(time.Millisecond))
			}
			l := newLocker(t, c, redlock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				return lagging(t, c, byAddr[addr])(ctx, network, addr)
			}))
			go func() {
				resumed, err := l.Resume(t.Context(), []string{job}, k.Token(), redlock.WithFencing(true))
				if err != nil {
					assert.ErrorIs(t, err, redlock.ErrNoQuorum)
					numbers <- 0
					return
				}
				numbers <- resumed.FencingToken()
			}()
		}
		one, other := <-numbers, <-numbers
		require.True(t, one == 0 && other == 0 || one != other, "both have %d", one)
	})
}
