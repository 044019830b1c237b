package pool_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
)

func TestARefusedConnectionMakesTheNodeSuspectUntilItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node, r := embedded(t)
		node.Stop()
		result := r.call(t, acquire("key", "token"))
		require.ErrorIs(t, result.Err, syscall.ECONNREFUSED)
		assert.Equal(t, pool.Never, result.Sent)

		b := newBox()
		id := r.send(b, acquire("key", "token"))
		require.Len(t, b.peek(id), 1, "at once")
		require.ErrorIs(t, b.peek(id)[0].Err, syscall.ECONNREFUSED, "with the cause")
		assert.Equal(t, pool.Never, b.peek(id)[0].Sent)
		assert.Equal(t, pool.Suspect, r.Stat().State)
		require.ErrorIs(t, r.Stat().Cause, syscall.ECONNREFUSED)

		require.NoError(t, node.Restart())
		time.Sleep(2 * time.Second) // more than the longest pause
		assert.Equal(t, pool.Up, r.Stat().State, "without any call")
		r.mustCall(t, acquire("key", "token"))
	})
}

func TestASickNodeIsProbedLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var tries []time.Duration
		c := clock.Monotonic()
		r := newRig(t, "fake:6379", pool.WithDialer(func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, c.Elapsed())
			return nil, syscall.ECONNREFUSED
		}))
		r.call(t, acquire("key", "token"))
		for range 1000 {
			r.send(newBox(), acquire("key", "token"))
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Greater(t, len(tries), 10)
		assert.Less(t, len(tries), 45, "in 10 s")
		for i := 1; i < len(tries); i++ {
			pause := tries[i] - tries[i-1]
			assert.GreaterOrEqual(t, pause, 12*time.Millisecond)
			assert.LessOrEqual(t, pause, 500*time.Millisecond)
		}
	})
}

func TestADialThatHangsCostsACallItsTimeoutAndNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		r := newRig(t, "fake:6379", pool.WithDialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		started := r.clock.Elapsed()
		result := r.call(t, acquire("key", "token"))
		assert.Equal(t, timeout, r.clock.Elapsed()-started)
		require.ErrorIs(t, result.Err, pool.ErrTimeout)
		require.NotErrorIs(t, result.Err, context.DeadlineExceeded)
		assert.Equal(t, pool.Never, result.Sent)

		result = r.call(t, acquire("key", "token"))
		assert.Equal(t, timeout, r.clock.Elapsed()-started, "the second waits for nothing")
		require.ErrorIs(t, result.Err, pool.ErrTimeout)

		time.Sleep(4*timeout + time.Second)
		result = r.call(t, acquire("key", "token"))
		require.ErrorIs(t, result.Err, pool.ErrTimeout)
		require.NotErrorIs(t, result.Err, context.DeadlineExceeded)
		require.NoError(t, r.Close())
		assert.GreaterOrEqual(t, dials, 2)
	})
}

func TestANodeThatHangsAfterTheHandshakeTimesOutAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node, r := embedded(t)
		r.mustCall(t, acquire("key", "token"))
		node.Hang()
		b := newBox()
		first := r.send(b, acquire("other", "token"))
		second := r.send(b, renew())
		started := r.clock.Elapsed()
		for _, id := range []int{first, second} {
			result := b.await(t, id)
			require.ErrorIs(t, result.Err, pool.ErrTimeout)
			require.NotErrorIs(t, result.Err, context.DeadlineExceeded)
			assert.Equal(t, pool.Maybe, result.Sent)
		}
		assert.Equal(t, timeout, r.clock.Elapsed()-started)
		third := r.send(b, renew())
		require.Len(t, b.peek(third), 1)
		require.ErrorIs(t, b.peek(third)[0].Err, pool.ErrTimeout)
		assert.Equal(t, pool.Never, b.peek(third)[0].Sent)

		node.Resume()
		time.Sleep(2 * time.Second)
		assert.Equal(t, pool.Up, r.Stat().State)
		r.mustCall(t, renew())
		_, _, held := node.Get("other")
		assert.True(t, held, "maybe means maybe: it was executed late")
	})
}

func TestAResetInMidFlightLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{handle: func(n int, conn net.Conn, args []string) string {
			if n == 1 && args[3] == "reset" {
				conn.(interface{ Reset() }).Reset()
			}
			return ":1\r\n"
		}})
		r := f.rig(t)
		r.mustCall(t, acquire("key", "token"))
		result := r.call(t, acquire("reset", "token"))
		require.ErrorIs(t, result.Err, syscall.ECONNRESET)
		assert.Equal(t, pool.Maybe, result.Sent)
		r.mustCall(t, acquire("key", "token"))
		assert.Equal(t, 2, r.Stat().Connects, "it had served: there is a new connection at once")
	})
}

func TestCallsThatWaitGoOutOnTheNextConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := serve(t, &fake{})
		r := newRig(t, "fake:6379", pool.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			<-gate
			return f.dial(ctx, network, address)
		}))
		b := newBox()
		for range 100 {
			r.send(b, acquire("key", "token"))
		}
		quiet()
		assert.Equal(t, 100, r.Stat().Waiting)
		assert.Equal(t, pool.Connecting, r.Stat().State)
		close(gate)
		for id := 1; id <= 100; id++ {
			require.NoError(t, b.await(t, id).Err)
		}
	})
}

// A server with an idle timeout closes what is not used. That is no sign of
// sickness, the second time neither.
func TestAConnectionThatIsClosedForBeingIdleDoesNotMakeTheNodeSuspect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{opened: func(_ int, conn net.Conn) bool {
			time.AfterFunc(3*time.Second, func() { _ = conn.Close() })
			return true
		}})
		r := f.rig(t)
		r.mustCall(t, acquire("key", "token"))
		for range 5000 {
			time.Sleep(3 * time.Millisecond)
			quiet()
			require.Equal(t, pool.Up, r.Stat().State)
		}
		assert.GreaterOrEqual(t, r.Stat().Connects, 5)
		time.Sleep(time.Millisecond) // not in the moment of the next closing
		r.mustCall(t, acquire("key", "token"))
	})
}

// A server that hangs up as soon as it has introduced itself must not be
// dialled in a tight loop.
func TestAConnectionThatEndsAtOnceIsNotReplacedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{info: func(int) string { return info("one", 1) + "-ERR bye\r\n" }})
		r := f.rig(t)
		r.call(t, acquire("key", "token"))
		time.Sleep(time.Second)
		require.NoError(t, r.Close())
		assert.Less(t, f.dials.Load(), int64(100))
	})
}

// An error in the handshake must not make anybody wait for ever for the rest
// of it.
func TestANodeThatRefusesAndThenHangsIsProbedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{opened: func(n int, conn net.Conn) bool {
			if n == 1 {
				_, _ = io.WriteString(conn, "-LOADING Redis is loading the dataset in memory\r\n")
			}
			return n > 1
		}})
		r := f.rig(t)
		result := r.call(t, acquire("key", "token"))
		require.Error(t, result.Err)
		time.Sleep(4*timeout + time.Second)
		r.mustCall(t, acquire("key", "token"))
	})
}

// Whoever starts a call too late has only themselves to blame.
func TestACallThatIsOverdueFromTheStartIsNotHeldAgainstTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		r := f.rig(t)
		r.mustCall(t, acquire("key", "token"))
		time.Sleep(time.Second) // the watchdog sleeps
		b := newBox()
		r.Start(&pool.Call{Script: acquire("key", "token"), To: b, Node: 7, Began: r.clock.Elapsed() - timeout})
		quiet()
		result := b.await(t, 7)
		require.ErrorIs(t, result.Err, pool.ErrTimeout)
		assert.Equal(t, pool.Never, result.Sent)
		assert.Equal(t, pool.Up, r.Stat().State)
		r.mustCall(t, acquire("key", "token"))
		assert.Equal(t, 1, r.Stat().Connects)
	})
}

// The same while the watchdog is armed for a call that has been answered.
func TestACallThatIsOverdueFromTheStartIsNotHeldAgainstABusyNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node, r := embedded(t)
		r.mustCall(t, renew())
		node.SetDelay(timeout / 4)
		time.Sleep(time.Second) // the watchdog sleeps
		r.mustCall(t, renew())
		b := newBox()
		r.Start(&pool.Call{Script: renew(), To: b, Node: 7, Began: r.clock.Elapsed() - 2*timeout})
		require.ErrorIs(t, b.await(t, 7).Err, pool.ErrTimeout)
		time.Sleep(timeout)
		assert.Equal(t, pool.Up, r.Stat().State)
	})
}

// A process that was stopped finds all its nodes late by its clock, and their
// answers waiting to be read.
func TestNodesAreNotBlamedForAStopOfTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopped := &stoppedClock{Clock: clock.Monotonic()}
		node, r := embedded(t, pool.WithClock(stopped))
		r.clock = stopped
		r.mustCall(t, renew())
		node.SetDelay(timeout + timeout/4) // so the answer is not there when the watchdog barks
		b := newBox()
		id := r.send(b, renew())
		stopped.behind.Store(int64(time.Hour))
		require.NoError(t, b.await(t, id).Err)
		assert.Equal(t, pool.Up, r.Stat().State)

		id = r.send(b, renew()) // not stopped, and as late
		require.ErrorIs(t, b.await(t, id).Err, pool.ErrTimeout)
		assert.Equal(t, pool.Suspect, r.Stat().State)
	})
}

type stoppedClock struct {
	clock.Clock
	behind atomic.Int64
}

func (c *stoppedClock) Elapsed() time.Duration {
	return c.Clock.Elapsed() + time.Duration(c.behind.Load())
}

func TestThereIsNeverMoreThanOneConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{handle: func(_ int, conn net.Conn, args []string) string {
			n, _ := strconv.Atoi(args[3])
			if n%7 == 0 {
				_ = conn.Close()
			}
			return ":1\r\n"
		}})
		r := f.rig(t)
		b := newBox()
		for i := range 500 {
			r.send(b, acquire(fmt.Sprint(i), "token"))
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		assert.Len(t, b.delivered(), 500)
		assert.Equal(t, 1, f.mostOpen())
		assert.Greater(t, r.Stat().Connects, 5)
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	for name, f := range map[string]*fake{
		"idle":         nil,
		"dialling":     nil,
		"in handshake": {opened: func(int, net.Conn) bool { return false }},
		"in flight":    {handle: func(int, net.Conn, []string) string { return "" }},
		"suspect":      {opened: func(_ int, conn net.Conn) bool { _ = conn.Close(); return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var r *rig
				if f == nil {
					r = newRig(t, "fake:6379", pool.WithDialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}))
				} else {
					r = serve(t, f).rig(t)
				}
				b := newBox()
				n := 0
				if name != "idle" {
					for range 10 {
						n++
						r.send(b, acquire("key", "token"))
					}
					quiet()
				}
				if name == "suspect" {
					require.Equal(t, pool.Suspect, r.Stat().State)
				}
				started := r.clock.Elapsed()
				var closers sync.WaitGroup
				for range 3 {
					closers.Go(func() {
						if err := r.Close(); err != nil {
							t.Error(err)
						}
						assert.Len(t, b.delivered(), n, "nothing comes after Close")
					})
				}
				closers.Wait()
				assert.Equal(t, started, r.clock.Elapsed(), "it waits for nothing")
				assert.Equal(t, pool.Closed, r.Stat().State)
				for id := 1; id <= n && name != "suspect"; id++ {
					result := b.await(t, id)
					require.ErrorIs(t, result.Err, pool.ErrClosed)
					require.NotErrorIs(t, result.Err, context.Canceled)
					want := pool.Never
					if name == "in flight" {
						want = pool.Maybe
					}
					assert.Equal(t, want, result.Sent)
				}
				result := r.call(t, acquire("key", "token"))
				require.ErrorIs(t, result.Err, pool.ErrClosed)
				assert.Equal(t, pool.Never, result.Sent)
				if f != nil {
					assert.Zero(t, f.nowOpen())
				}
				require.NoError(t, r.Close())
			})
		})
	}
}

func TestCloseWaitsForTheLastDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{info: func(int) string { return info("one", 0) }})
		r := f.rig(t, pool.WithRestartGuard(time.Minute))
		r.mustCall(t, renew())
		b := newBox()
		b.deliver = func(int, pool.Result) { time.Sleep(time.Second) }
		id := 0
		var caller sync.WaitGroup
		caller.Go(func() { id = r.send(b, acquire("key", "token")) })
		quiet() // it has been refused, and is being delivered
		require.NoError(t, r.Close())
		assert.Len(t, b.delivered(), 1)
		caller.Wait()
		assert.ErrorIs(t, b.await(t, id).Err, pool.ErrRestarted)
	})
}

func TestErrorsHaveOneIdentity(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		context.DeadlineExceeded,
		os.ErrDeadlineExceeded,
		&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded},
		fmt.Errorf("dial: %w", context.DeadlineExceeded),
		&net.DNSError{IsTimeout: true},
		pool.ErrTimeout,
	} {
		got := pool.Normalise(err)
		require.ErrorIs(t, got, pool.ErrTimeout)
		require.NotErrorIs(t, got, context.DeadlineExceeded)
	}
	cancelled := pool.Normalise(fmt.Errorf("tunnel: %w", context.Canceled))
	require.NotErrorIs(t, cancelled, context.Canceled, "the caller's context was not")
	require.NotErrorIs(t, cancelled, pool.ErrClosed, "the pool is not")
	require.ErrorContains(t, cancelled, "tunnel")

	var timeouter net.Error
	require.ErrorAs(t, pool.ErrTimeout, &timeouter)
	assert.True(t, timeouter.Timeout())
	for _, err := range []error{io.EOF, syscall.ECONNRESET, redis.Error("OOM")} {
		assert.Equal(t, err, pool.Normalise(err))
	}
}

func TestPermanentFailuresAreThoseThatSomebodyMustMend(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica.":                          true,
		"NOAUTH Authentication required.":                                                true,
		"WRONGPASS invalid username-password pair or user is disabled.":                  true,
		"NOPERM this user has no permissions to run the 'evalsha' command":               true,
		"MOVED 866 10.0.0.1:6379":                                                        true,
		"CROSSSLOT Keys in request don't hash to the same slot":                          true,
		"CLUSTERDOWN Hash slot not served":                                               true,
		"WRONGTYPE Operation against a key holding the wrong kind of value":              true,
		"DENIED Redis is running in protected mode because protected mode is enabled":    true,
		"ERR unknown command 'EVALSHA', with args beginning with: ":                      true,
		"ERR invalid password":                                                           true,
		"ERR Client sent AUTH, but no password is set":                                   true,
		"ERR AUTH <password> called without any password configured for the default":     true,
		"ERR DB index is out of range":                                                   true,
		"ERR SELECT is not allowed in cluster mode":                                      true,
		"ERR The user executing the script can't run this command or subcommand":         true,
		"ERR ACL failure in script: User bob has no permissions to run the 'set' comm":   true,
		"OOM command not allowed when used memory > 'maxmemory'.":                        false,
		"LOADING Redis is loading the dataset in memory":                                 false,
		"BUSY Redis is busy running a script.":                                           false,
		"MISCONF Redis is configured to save RDB snapshots":                              false,
		"NOREPLICAS Not enough good replicas to write.":                                  false,
		"ERR max number of clients reached":                                              false,
		"NOSCRIPT No matching script.":                                                   false,
		"ERR fencing counter is exhausted":                                               false,
		"ERR Error running script (call to f_9f): @user_script:12: -READONLY You can't":  true,
		"ERR Error running script (call to f_9f): @user_script: 31: WRONGTYPE Operation": true,
		"ERR Error running script (call to f_9f): @user_script:44: -OOM command not":     false,
		"ERR Error running script":                                                       false,
	} {
		assert.Equal(t, want, pool.Permanent(redis.Error(text)), text)
		assert.Equal(t, want, pool.Permanent(fmt.Errorf("node is suspect: %w", redis.Error(text))), text)
	}
	for alert, want := range map[tls.AlertError]bool{
		42: true, 48: true, 70: true, 116: true, 120: true, // a certificate, a version, a protocol
		80: false, 90: false, 10: false, // internal_error, user_canceled, unexpected_message
	} {
		err := fmt.Errorf("TLS: %w", &net.OpError{Op: "remote error", Err: alert})
		assert.Equal(t, want, pool.Permanent(err), "%v", err)
	}
	assert.True(t, pool.Permanent(fmt.Errorf("TLS: %w", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"})))
	for _, err := range []error{nil, io.EOF, pool.ErrTimeout, pool.ErrRestarted, errors.New("READONLY")} {
		assert.False(t, pool.Permanent(err), "%v", err)
	}
}
