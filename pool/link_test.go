package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
)

// writes counts the Writes of the connections it dials.
type writes struct {
	dial  pool.DialFunc
	count atomic.Int64
	// stack is that of the last Write.
	stack atomic.Pointer[string]
}

type writesConn struct {
	net.Conn
	writes *writes
}

func (w *writes) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.dial(ctx, network, address)
	return &writesConn{conn, w}, err
}

func (c *writesConn) Write(p []byte) (int, error) {
	c.writes.count.Add(1)
	buf := make([]byte, 1<<14)
	stack := string(buf[:runtime.Stack(buf, false)])
	c.writes.stack.Store(&stack)
	return c.Conn.Write(p)
}

func TestAnIdleCallerWritesItsCallOnceAndByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		w := &writes{dial: f.dial}
		r := newRig(t, "fake:6379", pool.WithDialer(w.Dial))
		r.mustCall(t, acquire("key", "token"))
		for range 20 {
			quiet()
			before := w.count.Load()
			b := newBox()
			id := r.send(b, acquire("key", "token"))
			assert.Equal(t, before+1, w.count.Load(), "one call, one Write, before Start returns")
			assert.Contains(t, *w.stack.Load(), "pool.(*Pool).Start(", "no goroutine in between")
			require.NoError(t, b.await(t, id).Err)
		}
		assert.EqualValues(t, 1, f.dials.Load())
	})
}

func TestConcurrentCallsShareOneConnectionAndTheWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, each = 50, 100
		f := serve(t, &fake{})
		w := &writes{dial: f.dial}
		r := newRig(t, "fake:6379", pool.WithDialer(w.Dial))
		r.mustCall(t, acquire("key", "token"))
		before := w.count.Load()
		b := newBox()
		var callersDone sync.WaitGroup
		for range callers {
			callersDone.Go(func() {
				for range each {
					r.send(b, acquire("key", "token"))
				}
			})
		}
		callersDone.Wait()
		quiet()
		assert.Len(t, b.delivered(), callers*each)
		for id := 2; id <= 1+callers*each; id++ {
			require.NoError(t, b.await(t, id).Err)
		}
		assert.Less(t, w.count.Load()-before, int64(callers*each/4), "calls are written together")
		assert.EqualValues(t, 1, f.dials.Load())
	})
}

func TestAnswersAreMatchedAndDeliveredInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			return bulk(args[3]) // the key
		}})
		r := f.rig(t)
		b := newBox()
		const n = 3000
		for i := 1; i <= n; i++ {
			r.send(b, acquire(fmt.Sprint(i), "token"))
			if i%700 == 0 {
				quiet()
			}
		}
		quiet()
		order := b.delivered()
		require.Len(t, order, n)
		for i, id := range order {
			require.Equal(t, i+1, id)
			reply, err := redis.String(b.await(t, id).Reply, nil)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(id), reply)
		}
	})
}

func TestStartNeverBlocksOnANodeThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		f := serve(t, &fake{handle: func(int, net.Conn, []string) string { <-hang; return "" }})
		r := f.rig(t)
		b := newBox()
		id := r.send(b, acquire("key", "token"))
		quiet() // the fake has read it and reads no more
		started := r.clock.Elapsed()
		big := strings.Repeat("k", 100)
		for range 2 * pool.MaxWaiting {
			r.send(b, acquire(big, "token"))
			require.Equal(t, started, r.clock.Elapsed(), "time passes in a bubble only if Start blocks")
		}
		stat := r.Stat()
		assert.Equal(t, pool.MaxWaiting, stat.Waiting+stat.InFlight)
		assert.Len(t, b.delivered(), pool.MaxWaiting+1)
		last := b.await(t, 2*pool.MaxWaiting+1)
		require.ErrorIs(t, last.Err, pool.ErrOverloaded)
		assert.Equal(t, pool.Never, last.Sent)

		result := b.await(t, id)
		assert.Equal(t, timeout, r.clock.Elapsed()-started)
		require.ErrorIs(t, result.Err, pool.ErrTimeout)
		assert.Equal(t, pool.Maybe, result.Sent)
		quiet()
		assert.Len(t, b.delivered(), 2*pool.MaxWaiting+1)
		assert.Equal(t, pool.Suspect, r.Stat().State)
	})
}

// Whoever has found room for one small call must not end up writing the large
// ones that others add before it gets to it.
func TestStartNeverBlocksOnTheCallsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const others = 500
		hang := make(chan struct{})
		defer close(hang)
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			if args[3] != "first" {
				<-hang
			}
			return ":1\r\n"
		}})
		hooked := &hookedClock{Clock: clock.Monotonic()}
		r := f.rig(t, pool.WithClock(hooked))
		r.clock = hooked.Clock
		r.mustCall(t, acquire("first", "token"))
		time.Sleep(time.Second) // the watchdog sleeps, and will ask for the time
		started := r.clock.Elapsed()

		b := newBox()
		var ready atomic.Int64
		gate := make(chan struct{})
		var callers sync.WaitGroup
		big := acquire(strings.Repeat("k", 1000), "token")
		for range others {
			callers.Go(func() {
				<-gate
				ready.Add(1)
				r.send(b, big)
				assert.Equal(t, started, r.clock.Elapsed())
			})
		}
		linger := func() {
			for range 10_000 {
				runtime.Gosched()
			}
		}
		// The clock and Wanted are called with the pool locked. While they take
		// their time, the others line up for the lock so long that it is then
		// handed on in order: each gets it once before the first of them, who is
		// to write, gets it again.
		hook := func() {
			hooked.hook.Store(nil)
			close(gate)
			for ready.Load() < others {
				runtime.Gosched()
			}
			linger()
		}
		hooked.hook.Store(&hook)
		r.send(&slowBox{box: b, wanted: linger}, acquire("small", "token"))
		callers.Wait()
		require.Nil(t, hooked.hook.Load())
	})
}

type hookedClock struct {
	clock.Clock
	hook atomic.Pointer[func()]
}

func (c *hookedClock) Elapsed() time.Duration {
	if hook := c.hook.Load(); hook != nil {
		(*hook)()
	}
	return c.Clock.Elapsed()
}

type slowBox struct {
	*box
	wanted func()
}

func (b *slowBox) Wanted() bool {
	b.wanted()
	return false
}

// A call that carries its script is some kilobytes, however small its keys.
func TestStartNeverBlocksOnScriptsSentAsSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		var unread atomic.Int64
		f := serve(t, &fake{
			load:   func(int, string) string { return "-NOPERM no\r\n" },
			handle: func(int, net.Conn, []string) string { <-hang; return "" },
		})
		narrow := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := f.dial(ctx, network, address)
			return &inlineBytes{Conn: conn, unread: &unread}, err
		}
		r := newRig(t, "fake:6379", pool.WithDialer(narrow))
		b := newBox()
		r.send(b, acquire("key", "token"))
		quiet()
		unread.Store(0)
		for range 20 {
			r.send(b, acquire("key", "token"))
		}
		assert.LessOrEqual(t, unread.Load(), int64(8<<10), "written by the caller itself")
	})
}

// inlineBytes counts what is written by callers of Start.
type inlineBytes struct {
	net.Conn
	unread *atomic.Int64
}

func (c *inlineBytes) Write(p []byte) (int, error) {
	buf := make([]byte, 1<<14)
	if strings.Contains(string(buf[:runtime.Stack(buf, false)]), "pool.(*Pool).Start(") {
		c.unread.Add(int64(len(p)))
	}
	return c.Conn.Write(p)
}

func TestFlushedScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node, r := embedded(t)
		r.mustCall(t, acquire("key", "token"))
		node.FlushScripts()
		b := newBox()
		ids := []int{
			r.send(b, renew()),
			r.send(b, release("key")),
			r.send(b, acquire("key", "other")),
			r.send(b, renew()),
		}
		for _, id := range ids {
			result := b.await(t, id)
			require.NoError(t, result.Err)
			assert.Equal(t, pool.Answered, result.Sent)
		}
		value, _, _ := node.Get("key")
		assert.Equal(t, "other", value)
		assert.Equal(t, 1, r.Stat().Connects, "nothing of this is the connection's fault")
		assert.Equal(t, 1+4, node.CountOf("EVALSHA"))
		assert.LessOrEqual(t, node.CountOf("EVAL"), 4, "each was sent twice at the most")
	})
}

// Several calls that were all answered NOSCRIPT go out again in the order in
// which they were started: a release that passed its acquire would leave a key
// behind.
func TestCallsThatAreSentAgainKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var executed []string
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			if args[0] == "EVALSHA" {
				return "-NOSCRIPT No matching script.\r\n"
			}
			mu.Lock()
			defer mu.Unlock()
			executed = append(executed, args[3])
			return ":1\r\n"
		}})
		r := f.rig(t)
		b := newBox()
		var want []string
		for i := range 500 {
			key := fmt.Sprint(i)
			want = append(want, key)
			if i%2 == 0 {
				r.send(b, acquire(key, "token"))
			} else {
				r.send(b, release(key))
			}
			if i%100 == 99 {
				quiet()
			}
		}
		quiet()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, want, executed)
		assert.IsIncreasing(t, b.delivered())
	})
}

func TestAnAcquireThatFoundNoScriptIsNotSentAgainUnlessWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan string)
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			if args[0] != "EVALSHA" {
				t.Errorf("sent again: %v", args)
			}
			return <-answer
		}})
		r := f.rig(t)
		b := newBox()
		id := r.send(b, acquire("key", "token"))
		quiet()
		b.unwanted.Store(true)
		answer <- "-NOSCRIPT No matching script.\r\n"
		result := b.await(t, id)
		require.ErrorContains(t, result.Err, "NOSCRIPT")
		assert.Equal(t, pool.Answered, result.Sent)
		quiet()
	})
}

func TestARefusedPlainSetIsNotFollowedByTheScriptUnlessWanted(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			answer := make(chan string)
			asked := make(chan []string, 2)
			f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
				asked <- args
				return <-answer
			}})
			r := f.rig(t)
			b := newBox()
			r.send(b, renew())
			answer <- ":1\r\n"
			require.Equal(t, "EVALSHA", (<-asked)[0])
			quiet()
			id := r.send(b, acquire("key", "token").PlainFirst())
			quiet()
			require.Equal(t, []string{"SET", "key", "token", "NX", "PX", fmt.Sprint(ttl.Milliseconds())}, <-asked)
			b.unwanted.Store(!wanted)
			answer <- "$-1\r\n"
			quiet()
			if !wanted {
				require.Equal(t, pool.Result{Sent: pool.Answered}, b.await(t, id))
				require.Empty(t, asked)
				return
			}
			require.Equal(t, "EVALSHA", (<-asked)[0])
			answer <- ":7\r\n"
			require.Equal(t, pool.Result{Reply: int64(7), Sent: pool.Answered}, b.await(t, id))
		})
	}
}

// A script that answers null, or a SET that answers NOSCRIPT, is no reason to
// ask again: nobody would ever end it.
func TestEachFormOfACallIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers []string // the last is the result
		sent    []string
	}{
		{[]string{"$-1", "$-1"}, []string{"SET", "EVALSHA"}},
		{[]string{"$-1", "-NOSCRIPT", "-NOSCRIPT"}, []string{"SET", "EVALSHA", "EVAL"}},
		{[]string{"$-1", "-NOSCRIPT", "$-1"}, []string{"SET", "EVALSHA", "EVAL"}},
		{[]string{"-NOSCRIPT", ":0"}, []string{"SET", "EVALSHA"}},
		{[]string{"-OOM", "-OOM"}, []string{"SET", "EVALSHA"}},
		{[]string{"+OK"}, []string{"SET"}},
		{[]string{":0"}, []string{"SET"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var sent []string
			f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
				sent = append(sent, args[0])
				if len(sent) == 1 {
					return ":1\r\n"
				}
				return test.answers[min(len(sent)-1, len(test.answers))-1] + "\r\n"
			}})
			r := f.rig(t)
			r.mustCall(t, renew())
			b := newBox()
			result := b.await(t, r.send(b, acquire("key", "token").PlainFirst()))
			quiet()
			assert.Equal(t, pool.Answered, result.Sent)
			assert.Equal(t, test.sent, sent[1:])
		})
	}
}

// A lock that no script can release must not be granted by a command that is
// none.
func TestAPlainSetIsOnlySentWhereTheLastScriptRan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		denied := true
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			sent = append(sent, args[0])
			switch {
			case args[0] == "SET":
				return "+OK\r\n"
			case denied:
				return "-NOPERM this user has no permissions to run the 'evalsha' command\r\n"
			}
			return ":1\r\n"
		}})
		r := f.rig(t)
		for range 3 {
			require.Error(t, r.call(t, acquire("key", "token").PlainFirst()).Err)
		}
		denied = false
		r.mustCall(t, renew())
		r.mustCall(t, acquire("key", "token").PlainFirst())
		denied = true
		require.Error(t, r.call(t, renew()).Err)
		require.Error(t, r.call(t, acquire("key", "token").PlainFirst()).Err)
		require.Equal(t, []string{"EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA", "SET", "EVALSHA", "EVALSHA"}, sent)
	})
}

// Once Wanted has returned false, a release that is started then is the last
// that the node hears of the matter, whatever happens to its scripts and its
// connections; provided that nothing became unknown.
func TestAReleaseAfterTheEndOfWantingIsTheLastWord(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node, r := embedded(t)
				rng := rand.New(rand.NewPCG(seed, 1))
				type claim struct {
					box                *box
					key                string
					acquired, released int
				}
				var claims []*claim
				for i := range 150 {
					if i%25 == 0 {
						// Connections are dropped so often that some seeds never
						// see one live. Calls to a suspect node prove nothing.
						time.Sleep(time.Second)
					}
					c := &claim{box: newBox(), key: fmt.Sprint("key", i)}
					claims = append(claims, c)
					call := acquire(c.key, "token")
					if rng.IntN(2) == 0 {
						call.PlainFirst()
					}
					if rng.IntN(3) == 0 {
						node.Set(c.key, "other", 5*time.Millisecond)
					}
					c.acquired = r.send(c.box, call)
					pause := time.Duration(rng.IntN(4)) * time.Millisecond
					var other sync.WaitGroup
					other.Go(func() {
						if pause > 0 {
							time.Sleep(pause)
						}
						c.box.unwanted.Store(true)
						c.released = r.send(c.box, release(c.key))
					})
					switch rng.IntN(12) {
					case 0, 1, 2:
						node.FlushScripts()
					case 3:
						node.DropConnections()
					case 4:
						node.SetDelay(time.Duration(rng.IntN(3)) * time.Millisecond)
					case 5:
						node.SetReplyDelay(time.Duration(rng.IntN(3)) * time.Millisecond)
					}
					other.Wait()
				}
				time.Sleep(time.Second)
				proven := 0
				for _, c := range claims {
					acquired, released := c.box.await(t, c.acquired), c.box.await(t, c.released)
					if acquired.Sent == pool.Maybe || released.Err != nil {
						continue
					}
					proven++
					_, _, held := node.Get(c.key)
					assert.False(t, held, "%s is left behind: %v, %v", c.key, acquired, released)
				}
				assert.Greater(t, proven, 5, "or else this test shows nothing")
			})
		})
	}
}

func TestAnUnwantedAcquireThatWaitsIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
			return bulk(args[3])
		}})
		r := f.rig(t)
		unwanted, wanted := newBox(), newBox()
		first := r.send(unwanted, acquire("first", "token"))
		second := r.send(wanted, acquire("second", "token"))
		unwanted.unwanted.Store(true)
		third := r.send(unwanted, release("third"))
		result := unwanted.await(t, first)
		require.ErrorIs(t, result.Err, pool.ErrUnwanted)
		assert.Equal(t, pool.Never, result.Sent)
		assert.NoError(t, wanted.await(t, second).Err)
		assert.NoError(t, unwanted.await(t, third).Err, "a release grants nothing")
	})
}

func TestScriptsGoAsSourceWhereLoadingThemIsDenied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node, r := embedded(t)
		node.SetError("NOPERM this user has no permissions to run the 'script|load' command", "SCRIPT")
		assert.EqualValues(t, 0, r.mustCall(t, acquire("key", "token")))
		assert.EqualValues(t, 1, r.mustCall(t, release("key")))
		assert.Equal(t, 2, node.CountOf("EVAL"))
		assert.Equal(t, 0, node.CountOf("EVALSHA"))
	})
}

func TestAReplyWithoutACallEndsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		r := f.rig(t)
		r.mustCall(t, acquire("key", "token"))
		_, err := f.conn().Write([]byte(":1\r\n"))
		require.NoError(t, err)
		quiet()
		assert.Equal(t, 2, r.Stat().Connects)
		assert.EqualValues(t, 1, r.mustCall(t, acquire("key", "token")))
	})
}

// When a result is still being delivered while the connection ends, what comes
// after it waits, whoever noticed the end.
func TestResultsKeepTheirOrderWhenTheConnectionEnds(t *testing.T) {
	ends := map[string]func(r *rig){
		"timeout": func(*rig) { time.Sleep(timeout) },
		"close":   func(r *rig) { _ = r.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answered := false
				f := serve(t, &fake{handle: func(n int, _ net.Conn, _ []string) string {
					if n == 1 && answered {
						return ""
					}
					answered = true
					return ":1\r\n"
				}})
				r := f.rig(t)
				b := newBox()
				b.deliver = func(id int, _ pool.Result) {
					if id == 1 {
						time.Sleep(3 * timeout) // as if the scheduler had left it there
					}
				}
				first := r.send(b, acquire("key", "token"))
				second := r.send(b, acquire("key", "token"))
				third := r.send(b, acquire("key", "token"))
				quiet()
				end(r)
				assert.Equal(t, pool.Answered, b.await(t, first).Sent)
				assert.Equal(t, pool.Maybe, b.await(t, second).Sent)
				assert.Equal(t, pool.Maybe, b.await(t, third).Sent)
				assert.Equal(t, []int{first, second, third}, b.delivered())
			})
		})
	}
}

// Whoever waits for a late vote waits for a few round trips, so one that is
// measured far too long is a delay like that of a hung node.
func TestARoundTripIsThatOfTheNodeAndSoonForgetsABusyMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		delay := time.Millisecond
		f := serve(t, &fake{
			load: func(_ int, script string) string {
				time.Sleep(10 * time.Millisecond)
				return bulk(script[:10])
			},
			handle: func(_ int, _ net.Conn, args []string) string {
				time.Sleep(delay)
				if args[0] == "SET" {
					return "$-1\r\n"
				}
				return ":1\r\n"
			},
		})
		r := f.rig(t)
		require.Zero(t, r.RoundTrip())
		r.mustCall(t, renew())
		require.Zero(t, r.RoundTrip(), "it waited for the connection")
		r.mustCall(t, renew())
		require.Equal(t, delay, r.RoundTrip())
		delay = 80 * time.Millisecond
		for range 8 {
			r.mustCall(t, renew())
		}
		require.Greater(t, r.RoundTrip(), delay/2)
		delay = time.Millisecond
		for range 6 * 8 {
			r.mustCall(t, renew())
		}
		require.Less(t, r.RoundTrip(), 3*delay)

		for i := range 20 * 8 {
			r.mustCall(t, acquire("key", "token").PlainFirst())
			if i%3 == 0 {
				r.mustCall(t, renew()) // or only first answers would be measured
			}
		}
		require.Less(t, r.RoundTrip(), delay+delay/10, "a refusal takes two")
	})
}

func TestAQueueDoesNotShiftForEveryCall(t *testing.T) {
	t.Parallel()
	var q pool.Queue
	var calls []*pool.Call
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		if rng.IntN(5) < 3 {
			c := new(pool.Call)
			calls = append(calls, c)
			q.Push(c)
		} else {
			var want *pool.Call
			if len(calls) > 0 {
				want, calls = calls[0], calls[1:]
			}
			require.Same(t, want, q.Pop())
		}
		require.Equal(t, len(calls), q.Len())
	}
	for q.Len() > 1000 {
		q.Pop()
	}
	for range 100_000 {
		q.Push(q.Pop())
	}
	assert.Less(t, q.Cap(), 16*1000+10_000, "and it does not grow without bound either")
}

func BenchmarkAFullQueue(b *testing.B) {
	var q pool.Queue
	for q.Push(new(pool.Call)); q.Len() < q.Cap() || q.Len() < 8000; {
		q.Push(new(pool.Call))
	}
	for b.Loop() {
		q.Push(q.Pop())
	}
}
