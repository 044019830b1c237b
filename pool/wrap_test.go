package pool_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

// wrap returns a pool around a user's redigo pool, which it closes.
func wrap(t *testing.T, users *redis.Pool, options ...pool.Option) *rig {
	t.Helper()
	c := clock.Monotonic()
	p, err := pool.Wrap("node", users, append([]pool.Option{pool.WithClock(c), pool.WithTimeout(timeout)}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = users.Close() })
	t.Cleanup(func() { _ = p.Close() })
	return &rig{Pool: p, clock: c}
}

// users returns a redigo pool as users have one.
func users(dial pool.DialFunc) *redis.Pool {
	return &redis.Pool{
		MaxIdle:   1,
		MaxActive: 1,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", "fake:6379", redis.DialContextFunc(dial))
		},
	}
}

func TestAWrappedPoolWorksOverSockets(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.Start(t, 1)
	users := &redis.Pool{MaxIdle: 1, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", cluster.Addrs()[0])
	}}
	p, err := pool.Wrap("mine", users, pool.WithTimeout(5*time.Second))
	require.NoError(t, err)
	r := &rig{Pool: p, clock: clock.System()}
	defer func() { assert.NoError(t, users.Close()) }()
	defer func() { assert.NoError(t, p.Close()) }()
	assert.Equal(t, "mine", p.Name())
	assert.Empty(t, p.Endpoint())
	r.mustCall(t, acquire("key", "token"))
	for range 100 {
		r.mustCall(t, renew())
	}
	assert.Equal(t, 1, users.ActiveCount())
	require.NoError(t, p.Close())
	assert.Equal(t, 1, users.IdleCount(), "given back, in working order")
	conn := users.Get()
	defer func() { _ = conn.Close() }()
	value, err := redis.String(conn.Do("GET", "key"))
	require.NoError(t, err)
	assert.Equal(t, "token", value)
}

func TestAnIdleConnectionIsGivenBackAndTestedBeforeItIsBorrowedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		u := users(f.dial)
		tests := 0
		u.TestOnBorrow = func(redis.Conn, time.Time) error {
			tests++
			if tests == 2 {
				return errors.New("the user does not like it any more")
			}
			return nil
		}
		r := wrap(t, u)
		for i := range 4 {
			r.mustCall(t, acquire("key", "token"))
			assert.Zero(t, u.IdleCount())
			assert.Equal(t, i, tests)
			time.Sleep(pool.Retire - time.Millisecond)
			r.mustCall(t, acquire("key", "token"))
			assert.Equal(t, i, tests, "not idle for long enough")
			time.Sleep(pool.Retire + time.Millisecond)
			assert.Equal(t, 1, u.IdleCount())
			assert.Equal(t, pool.Idle, r.Stat().State)
		}
		assert.EqualValues(t, 2, f.dials.Load(), "one, and one for that which failed the test")
	})
}

// The user's pool may allow one connection and no more. Then the next must not
// be asked for before the last has been given back, or the node would become
// suspect for no fault of its own.
func TestAWrappedPoolNeverTakesASecondConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{handle: func(_ int, conn net.Conn, args []string) string {
			switch args[3] {
			case "close":
				_ = conn.Close()
			case "hang":
				return ""
			}
			return ":1\r\n"
		}})
		u := users(f.dial)
		r := wrap(t, u)
		r.mustCall(t, acquire("key", "token"))
		for range 10 {
			result := r.call(t, acquire("close", "token"))
			require.Error(t, result.Err)
			assert.Equal(t, pool.Maybe, result.Sent)
			r.mustCall(t, acquire("key", "token"))
		}
		// The watchdog notices before the reader does, which has the connection.
		b := newBox()
		r.Start(&pool.Call{Script: acquire("hang", "token"), To: b, Began: r.clock.Elapsed() - timeout/2})
		result := b.await(t, 0)
		require.ErrorIs(t, result.Err, pool.ErrTimeout)
		quiet()
		for range 200 {
			time.Sleep(time.Millisecond)
			require.NotErrorIs(t, r.Stat().Cause, redis.ErrPoolExhausted)
		}
		r.mustCall(t, acquire("key", "token"))
		assert.Equal(t, 1, f.mostOpen())
	})
}

func TestRetirementAndANewCallDoNotCollide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		r := wrap(t, users(f.dial))
		for range 200 {
			r.mustCall(t, acquire("key", "token"))
			time.Sleep(pool.Retire) // the timer and the call are due in the same moment
			r.mustCall(t, acquire("key", "token"))
		}
	})
}

func TestGarbageThatMakesRedigoPanicIsAnError(t *testing.T) {
	for name, garbage := range map[string]string{
		"array":   "*999999999999999999\r\n",
		"bulk":    "$9223372036854775807\r\n",
		"no RESP": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"number":  ":12x\r\n",
		"twice":   "*999999999999999999\r\n*999999999999999999\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
					if args[3] == "garbage" {
						time.Sleep(time.Millisecond) // both calls are on their way
						return garbage
					}
					return ":1\r\n"
				}})
				r := wrap(t, users(f.dial))
				r.mustCall(t, acquire("key", "token"))
				b := newBox()
				first := r.send(b, acquire("garbage", "token"))
				second := r.send(b, acquire("key", "token"))
				for _, id := range []int{first, second} {
					result := b.await(t, id)
					require.Error(t, result.Err)
					assert.Equal(t, pool.Maybe, result.Sent)
				}
				time.Sleep(time.Second)
				assert.EqualValues(t, 2, f.dials.Load(), "the connection is not used any more")
				r.mustCall(t, acquire("key", "token"))
			})
		})
	}
}

// A connection with replies outstanding must not be given back as it is:
// redigo would wait for them, without end.
func TestCloseDoesNotWaitForRepliesThatNeverCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		first := true
		f.handle = func(int, net.Conn, []string) string {
			if !first {
				return ""
			}
			first = false
			time.Sleep(timeout / 2)
			return ":1\r\n"
		}
		u := users(f.dial)
		r := wrap(t, u)
		b := newBox()
		for range 3 {
			r.send(b, acquire("key", "token"))
		}
		quiet()
		started := r.clock.Elapsed()
		require.NoError(t, r.Close())
		assert.LessOrEqual(t, r.clock.Elapsed()-started, timeout)
		assert.Len(t, b.delivered(), 3)
		assert.Zero(t, u.ActiveCount(), "it is of no use to anybody")
	})
}

// The reader's timeout frees a writer that is stuck. A reply that comes late
// must not keep it from doing so.
func TestALateReplyDoesNotLeaveTheWriterStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		hang := make(chan struct{})
		defer close(hang)
		f := serve(t, &fake{handle: func(n int, conn net.Conn, _ []string) string {
			if n == 1 {
				<-late
				_, _ = io.WriteString(conn, ":1\r\n")
				<-hang
			}
			return ":1\r\n"
		}})
		r := wrap(t, users(f.dial))
		b := newBox()
		key := strings.Repeat("k", 1000)
		for id := range 300 {
			// The operation is some milliseconds old already.
			r.Start(&pool.Call{Script: acquire(key, "token"), To: b, Node: id, Began: r.clock.Elapsed() - timeout/10})
		}
		time.Sleep(timeout - timeout/10 + time.Millisecond)
		assert.Len(t, b.delivered(), 300)
		close(late)
		time.Sleep(2 * time.Second)
		r.mustCall(t, acquire("key", "token"))
		require.NoError(t, r.Close())
	})
}

func TestAWrappedPoolIsClosedInWhateverState(t *testing.T) {
	for name, answer := range map[string]string{"at rest": ":1\r\n", "in flight": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := serve(t, &fake{handle: func(int, net.Conn, []string) string { return answer }})
				u := users(f.dial)
				r := wrap(t, u)
				b := newBox()
				id := r.send(b, acquire("key", "token"))
				quiet()
				started := r.clock.Elapsed()
				require.NoError(t, r.Close())
				assert.LessOrEqual(t, r.clock.Elapsed()-started, timeout)
				result := b.await(t, id)
				if answer == "" {
					require.ErrorIs(t, result.Err, pool.ErrClosed)
					assert.Equal(t, pool.Maybe, result.Sent)
				} else {
					require.NoError(t, result.Err)
					assert.Equal(t, 1, u.IdleCount())
				}
			})
		})
	}
}

// A refusal in the handshake leaves a connection in order: it is the user's.
func TestARefusedHandshakeGivesTheConnectionBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var loading atomic.Bool
		loading.Store(true)
		f := serve(t, &fake{load: func(int, string) string {
			if loading.Load() {
				return "-LOADING Redis is loading the dataset in memory\r\n"
			}
			return bulk("hash")
		}})
		u := users(f.dial)
		r := wrap(t, u)
		require.ErrorContains(t, r.call(t, acquire("key", "token")).Err, "LOADING")
		assert.Equal(t, 1, u.IdleCount())
		loading.Store(false)
		time.Sleep(2 * time.Second)
		r.mustCall(t, acquire("key", "token"))
		assert.EqualValues(t, 1, f.dials.Load())
	})
}

func TestAnExhaustedPoolIsAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		u := users(f.dial)
		theirs := u.Get()
		r := wrap(t, u)
		require.ErrorIs(t, r.call(t, acquire("key", "token")).Err, redis.ErrPoolExhausted)
		require.NoError(t, theirs.Close())
		time.Sleep(2 * time.Second)
		r.mustCall(t, acquire("key", "token"))
	})
}

func TestWrapRefusesNonsense(t *testing.T) {
	t.Parallel()
	u := &redis.Pool{}
	for name, make := range map[string]func() (*pool.Pool, error){
		"name":        func() (*pool.Pool, error) { return pool.Wrap("", u) },
		"redigo pool": func() (*pool.Pool, error) { return pool.Wrap("node", nil) },
		"dialling": func() (*pool.Pool, error) {
			return pool.Wrap("node", u, pool.WithDialer(func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }))
		},
		"timeout":       func() (*pool.Pool, error) { return pool.New("a:1", pool.WithTimeout(0)) },
		"restart guard": func() (*pool.Pool, error) { return pool.New("a:1", pool.WithRestartGuard(-1)) },
		"clock":         func() (*pool.Pool, error) { return pool.New("a:1", pool.WithClock(nil)) },
		"logger":        func() (*pool.Pool, error) { return pool.New("a:1", pool.WithLogger(nil)) },
		"dialer":        func() (*pool.Pool, error) { return pool.New("a:1", pool.WithDialer(nil)) },
		"TLS":           func() (*pool.Pool, error) { return pool.New("a:1", pool.WithTLSConfig(nil)) },
		"host":          func() (*pool.Pool, error) { return pool.New(":1") },
	} {
		p, err := make()
		assert.Nil(t, p, name)
		assert.ErrorContains(t, err, name)
	}
}

// With the dialer replaced through redigo's own options nothing is known of
// the network connection; the rest works as it does for a wrapped pool.
func TestADialerAmongTheDialOptionsWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			if args[3] == "garbage" {
				return "*999999999999999999\r\n"
			}
			return ":1\r\n"
		}})
		r := newRig(t, "fake:6379", pool.WithDialOptions(redis.DialContextFunc(f.dial)))
		r.mustCall(t, acquire("key", "token"))
		require.Error(t, r.call(t, acquire("garbage", "token")).Err)
		r.mustCall(t, acquire("key", "token"))
		time.Sleep(pool.Retire + time.Second)
		assert.Zero(t, f.nowOpen())
		r.mustCall(t, acquire("key", "token"))
		require.NoError(t, r.Close())
		assert.Zero(t, f.nowOpen())
	})
}
