package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

const channel = "redlock:released:key"

// A hearer keeps what it is told.
type hearer struct {
	mu    sync.Mutex // guards what follows
	told  []error
	at    []time.Time
	heard int
}

func (h *hearer) Subscribed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, err)
	h.at = append(h.at, time.Now())
}

func (h *hearer) Heard(string, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard++
}

// subscriptions returns what the hearer was told since the last time, once all
// that is under way has arrived.
func (h *hearer) subscriptions() []error {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	told := h.told
	h.told, h.at = nil, nil
	return told
}

func (h *hearer) messages() int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard
}

func requireSubscribed(t *testing.T, hearers ...*hearer) {
	t.Helper()
	for _, h := range hearers {
		require.Equal(t, []error{nil}, h.subscriptions())
	}
}

// publish sends a message, as anybody may.
func publish(t *testing.T, n *redlocktest.Node, dial pool.DialFunc, channel string) {
	t.Helper()
	conn, err := dial(t.Context(), "tcp", n.Addr())
	require.NoError(t, err)
	c := redis.NewConn(conn, 0, 0)
	_, err = c.Do("PUBLISH", channel, "")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	synctest.Wait()
}

// listening returns an embedded node, its pool, and how to publish on it.
func listening(t *testing.T) (*redlocktest.Node, *rig, func(channel string)) {
	t.Helper()
	cluster := redlocktest.StartPiped(t, 1)
	n := cluster.Node(0)
	return n, newRig(t, n.Addr(), pool.WithDialer(cluster.Dial)), func(channel string) {
		publish(t, n, cluster.Dial, channel)
	}
}

func TestMessagesReachTheListenersOfTheirChannelOverOneConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, publish := listening(t)
		quiet()
		require.Zero(t, n.Connections(), "on demand")
		first, second, both := &hearer{}, &hearer{}, &hearer{}
		r.Listen("one", first)
		r.Listen("two", second)
		r.Listen("one", both)
		r.Listen("two", both)
		requireSubscribed(t, first, second)
		require.Equal(t, []error{nil, nil}, both.subscriptions())
		require.Equal(t, 1, n.Connections())

		publish("one")
		publish("two")
		publish("two")
		publish("three")
		assert.Equal(t, []int{1, 2, 3}, []int{first.messages(), second.messages(), both.messages()})

		r.Unlisten("two", both)
		r.Unlisten("two", both) // and once more, for nothing
		r.Unlisten("three", both)
		publish("one")
		publish("two")
		assert.Equal(t, []int{2, 3, 4}, []int{first.messages(), second.messages(), both.messages()})

		late := &hearer{}
		r.Listen("one", late)
		requireSubscribed(t, late)
		assert.LessOrEqual(t, n.CountOf("SUBSCRIBE"), 2, "one for each channel at the most")
		time.Sleep(10 * time.Minute)
		publish("one")
		assert.Equal(t, 1, late.messages())
		assert.Empty(t, late.subscriptions(), "nothing was lost")
	})
}

func TestAConfirmationIsNotTakenForThatOfAnEarlierSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, _ := listening(t)
		r.Listen("other", &hearer{}) // so that the connection is up
		quiet()
		n.SetReplyDelay(50 * time.Millisecond)
		start := time.Now()
		for range 3 {
			h := &hearer{}
			r.Listen(channel, h)
			time.Sleep(5 * time.Millisecond)
			r.Unlisten(channel, h)
			time.Sleep(5 * time.Millisecond)
			assert.Empty(t, h.subscriptions())
		}
		h := &hearer{}
		r.Listen(channel, h) // 30 ms after the start
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		h.mu.Lock()
		require.Len(t, h.at, 1)
		assert.Equal(t, 80*time.Millisecond, h.at[0].Sub(start))
		h.mu.Unlock()

		// A listener that comes while the channel is subscribed hears at once.
		r.Unlisten(channel, h)
		again := &hearer{}
		r.Listen(channel, again)
		assert.Len(t, again.subscriptions(), 1)
	})
}

func TestListenersLearnThatMessagesMayHaveBeenMissed(t *testing.T) {
	t.Parallel()
	faults := map[string]func(n *redlocktest.Node, publish func(string)){
		"the connection is dropped": func(n *redlocktest.Node, _ func(string)) { n.DropConnections() },
		"the node restarts":         func(n *redlocktest.Node, _ func(string)) { _ = n.Restart() },
		"the node is down for a minute": func(n *redlocktest.Node, _ func(string)) {
			n.Stop()
			time.Sleep(time.Minute)
			_ = n.Restart()
		},
		"the node hangs": func(n *redlocktest.Node, _ func(string)) {
			n.Hang()
			time.Sleep(pool.PingEvery + timeout + pool.PingEvery)
			n.Resume()
		},
		"answers are lost": func(n *redlocktest.Node, _ func(string)) {
			n.DropReplies(true)
			time.Sleep(pool.PingEvery + timeout + pool.PingEvery)
			n.DropReplies(false)
		},
		"an absurd message": func(n *redlocktest.Node, publish func(string)) {
			publish(strings.Repeat("c", pool.MaxBulk+1)) // nobody listens to it
			n.DropConnections()
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, r, publish := listening(t)
				one, two := &hearer{}, &hearer{}
				r.Listen("one", one)
				r.Listen("two", two)
				requireSubscribed(t, one, two)
				for range 3 {
					fault(n, publish)
					time.Sleep(pool.PingEvery + timeout + time.Second)
					for i, h := range []*hearer{one, two} {
						told := h.subscriptions()
						require.GreaterOrEqual(t, len(told), 2)
						require.Error(t, told[0])
						require.NoError(t, told[len(told)-1])
						before := h.messages()
						publish([]string{"one", "two"}[i])
						require.Equal(t, before+1, h.messages())
					}
					require.Equal(t, 1, n.Connections())
				}
			})
		})
	}
}

func TestNobodyListensForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, _ := listening(t)
		h := &hearer{}
		for _, stay := range []time.Duration{0, 1900 * time.Millisecond, pool.PingEvery, time.Minute} {
			dialled := n.CountOf("SUBSCRIBE")
			r.Listen(channel, h)
			requireSubscribed(t, h)
			time.Sleep(stay)
			r.Unlisten(channel, h)
			time.Sleep(pool.Linger - time.Millisecond)
			require.Equal(t, 1, n.Connections(), "whoever comes now need not wait")
			r.Listen(channel, h)
			requireSubscribed(t, h)
			require.Equal(t, dialled+2, n.CountOf("SUBSCRIBE"))
			r.Unlisten(channel, h)
			quiet()
			pings := n.CountOf("PING")
			time.Sleep(pool.Linger + time.Millisecond)
			quiet()
			require.Zero(t, n.Connections())
			require.Equal(t, pings, n.CountOf("PING"))
			topics, unconfirmed := r.Topics()
			require.Zero(t, topics+unconfirmed)
		}
		commands := n.Commands()
		time.Sleep(time.Hour)
		require.Equal(t, commands, n.Commands())
	})
}

func TestAUserWithoutTheChannelIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, publish := listening(t)
		n.SetError("NOPERM this user has no permissions to access one of the channels", "SUBSCRIBE")
		h, late := &hearer{}, &hearer{}
		r.Listen(channel, h)
		told := h.subscriptions()
		require.Len(t, told, 1)
		require.ErrorContains(t, told[0], "NOPERM")
		r.Listen(channel, late)
		require.Equal(t, told, late.subscriptions(), "at once, and without asking")
		r.Unlisten(channel, late)

		time.Sleep(10*pool.ForbiddenPause + time.Second)
		require.LessOrEqual(t, n.CountOf("SUBSCRIBE"), 11)
		require.Zero(t, n.Connections())
		n.SetError("")
		time.Sleep(pool.ForbiddenPause)
		told = h.subscriptions()
		require.NoError(t, told[len(told)-1])
		publish(channel)
		require.Equal(t, 1, h.messages())

		// Whoever leaves in the pause leaves nothing to do behind.
		n.SetError("NOPERM", "SUBSCRIBE")
		n.DropConnections()
		time.Sleep(time.Second)
		quiet()
		require.ErrorContains(t, last(h), "NOPERM")
		r.Unlisten(channel, h)
		for range 2 * pool.ForbiddenPause / time.Second {
			time.Sleep(time.Second)
			quiet()
			require.Zero(t, n.Connections())
		}
		topics, _ := r.Topics()
		require.Zero(t, topics)
	})
}

func last(h *hearer) error {
	told := h.subscriptions()
	return told[len(told)-1]
}

func TestCloseEndsASubscriptionAtOnce(t *testing.T) {
	t.Parallel()
	cases := map[string]func(n *redlocktest.Node){
		"idle":         func(*redlocktest.Node) {},
		"hung":         func(n *redlocktest.Node) { n.Hang() },
		"down":         func(n *redlocktest.Node) { n.Stop() },
		"mute":         func(n *redlocktest.Node) { n.DropReplies(true) },
		"forbidden":    func(n *redlocktest.Node) { n.SetError("NOPERM", "SUBSCRIBE"); n.DropConnections() },
		"disconnected": func(n *redlocktest.Node) { n.DropConnections() },
	}
	for name, fault := range cases {
		for _, wait := range []time.Duration{0, time.Second, time.Minute} {
			t.Run(fmt.Sprint(name, " for ", wait), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n, r, _ := listening(t)
					h := &hearer{}
					r.Listen(channel, h)
					requireSubscribed(t, h)
					fault(n)
					time.Sleep(wait)
					start := time.Now()
					require.NoError(t, r.Close())
					require.Zero(t, time.Since(start))
					h.subscriptions()
					late := &hearer{}
					r.Listen(channel, late)
					require.Error(t, last(late))
					r.Unlisten(channel, late)
				})
			})
		}
	}
}

func TestCloseEndsASubscriptionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	t.Run("dialling", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "fake:6379", pool.WithDialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}))
			h := &hearer{}
			r.Listen(channel, h)
			time.Sleep(timeout)
			start := time.Now()
			require.NoError(t, r.Close())
			require.Zero(t, time.Since(start))
			require.ErrorIs(t, last(h), pool.ErrClosed)
		})
	})
	t.Run("writing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := serve(t, &fake{opened: func(int, net.Conn) bool { return false }}) // reads nothing
			r := f.rig(t)
			h := &hearer{}
			for i := range 10_000 {
				r.Listen(fmt.Sprint(channel, i), h)
			}
			time.Sleep(timeout)
			start := time.Now()
			require.NoError(t, r.Close())
			require.Zero(t, time.Since(start))
			require.Zero(t, f.nowOpen())
		})
	})
}

func TestAWrappedPoolListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 1)
		n := cluster.Node(0)
		u := users(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return cluster.Dial(ctx, network, n.Addr())
		})
		u.MaxActive = 2
		r := wrap(t, u)
		h := &hearer{}
		for range 3 {
			r.Listen(channel, h)
			time.Sleep(time.Second) // what the user's pool keeps idle may be dead
			require.NoError(t, last(h))
			before := h.messages()
			publish(t, n, cluster.Dial, channel)
			require.Equal(t, before+1, h.messages())
			r.mustCall(t, acquire("key", "token"))
			n.DropConnections()
			time.Sleep(time.Second)
			require.NoError(t, last(h))
			r.Unlisten(channel, h)
			time.Sleep(pool.Linger + pool.Retire + time.Second)
			quiet()
			require.Zero(t, u.ActiveCount()-u.IdleCount(), "given back")
		}
		r.Listen(channel, h)
		time.Sleep(time.Second)
		require.NoError(t, last(h))
		n.Hang()
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, r.Close())
		require.LessOrEqual(t, time.Since(start), pool.PingEvery+2*timeout)
		n.Resume()
	})
}

func TestAListenerDoesNotTakeTheOnlyConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{})
		u := users(f.dial)
		r := wrap(t, u)
		h := &hearer{}
		r.Listen(channel, h)
		time.Sleep(pool.Retire)
		told := h.subscriptions()
		require.Len(t, told, 1)
		require.ErrorContains(t, told[0], "one connection")
		for range 3 {
			r.mustCall(t, acquire("key", "token"))
			time.Sleep(2 * pool.Retire) // it is given back
		}
		r.Unlisten(channel, h)
	})
}

func TestGarbageOnTheSubscriptionIsNoMessage(t *testing.T) {
	t.Parallel()
	for _, rubbish := range []string{
		"rubbish\r\n", ":1\r\n", "+OK\r\n", "*-1\r\n", "$-1\r\n", "*0\r\n", "*1\r\n$3\r\nfoo\r\n",
		"*3\r\n$7\r\nmessage\r\n*0\r\n$-1\r\n", "*999999999\r\n", "*3\r\n$9\r\nsubscribe\r\n:1\r\n$1\r\nx\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n", "-ERR unknown command 'SUBSCRIBE'\r\n", "\x00\xff",
	} {
		for name, wrapped := range map[string]bool{"own": false, "wrapped": true} {
			t.Run(fmt.Sprintf("%s %.20q", name, rubbish), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
						if args[0] == "SUBSCRIBE" {
							return rubbish
						}
						return ""
					}})
					var r *rig
					if wrapped {
						if strings.HasPrefix(rubbish, "*99") {
							t.Skip("redigo would allocate it")
						}
						u := users(f.dial)
						u.MaxActive = 0
						r = wrap(t, u)
					} else {
						r = f.rig(t)
					}
					h := &hearer{}
					r.Listen(channel, h)
					time.Sleep(10 * time.Second)
					told := h.subscriptions()
					require.NotEmpty(t, told)
					for _, err := range told {
						require.Error(t, err)
					}
					require.Zero(t, h.messages())
					require.Less(t, f.dials.Load(), int64(30), "with pauses")
					require.LessOrEqual(t, f.mostOpen(), 1)
					r.Unlisten(channel, h)
				})
			})
		}
	}
}

// Not parallel: the goroutines of other tests would be counted.
func TestNothingGrowsWithTheNumberOfListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, r, publish := listening(t)
		stays := &hearer{}
		r.Listen("stays", stays)
		requireSubscribed(t, stays)
		before := runtime.NumGoroutine()
		for i := range 10_000 {
			h := &hearer{}
			name := fmt.Sprint(channel, i%7)
			r.Listen(name, h)
			if i%3 == 0 {
				synctest.Wait()
			}
			r.Unlisten(name, h)
			if i%5 == 0 {
				synctest.Wait()
			}
			if i%1000 == 0 {
				require.Equal(t, 1, n.Connections())
			}
		}
		quiet()
		topics, unconfirmed := r.Topics()
		require.Equal(t, []int{1, 0}, []int{topics, unconfirmed})
		require.LessOrEqual(t, runtime.NumGoroutine(), before+100)
		require.Equal(t, 1, n.Connections())
		publish("stays")
		require.Equal(t, 1, stays.messages())
		require.Empty(t, stays.subscriptions())
	})
}

// A listener that believed for good that it hears, or does not, would be worse
// than one that is told nothing.
func TestListenersAreToldInTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, _ := listening(t)
		rounds := 300
		if testing.Short() {
			rounds = 50
		}
		for range rounds {
			all := make([]*hearer, 8)
			var wg sync.WaitGroup
			for i := range all {
				all[i] = &hearer{}
				wg.Go(func() {
					for range rand.N(20) {
						runtime.Gosched()
					}
					r.Listen(channel, all[i])
				})
			}
			wg.Go(func() {
				for range rand.N(20) {
					runtime.Gosched()
				}
				n.DropConnections()
			})
			wg.Wait()
			time.Sleep(time.Second)
			for _, h := range all {
				told := h.subscriptions()
				require.NotEmpty(t, told)
				require.NoError(t, told[len(told)-1])
				for i := 1; i < len(told); i++ {
					require.False(t, told[i] == nil && told[i-1] == nil, "confirmed twice: %v", told)
				}
				r.Unlisten(channel, h)
			}
			if rand.N(2) == 0 {
				time.Sleep(2 * pool.Linger)
			}
		}
	})
}

// A slowHearer takes its time to take in what it is told first.
type slowHearer struct {
	hearer
	meanwhile func()
}

func (h *slowHearer) Subscribed(err error) {
	if do := h.meanwhile; do != nil {
		h.meanwhile = nil
		do()
		for range 10_000 {
			runtime.Gosched()
		}
	}
	h.hearer.Subscribed(err)
}

func TestALossIsToldAfterTheSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, _ := listening(t)
		first := &hearer{}
		r.Listen(channel, first)
		requireSubscribed(t, first)
		h := &slowHearer{meanwhile: n.DropConnections}
		r.Listen(channel, h) // is told at once
		time.Sleep(time.Second)
		told := h.subscriptions()
		require.Len(t, told, 3)
		require.NoError(t, told[0])
		require.Error(t, told[1])
		require.NoError(t, told[2])
	})
}

func TestFollowersHearAllChannelsOfTheirPattern(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, publish := listening(t)
		follower, hearer := &hearer{}, &hearer{}
		r.Follow("one*", follower)
		r.Listen("one1", hearer)
		requireSubscribed(t, follower, hearer)
		assert.Equal(t, 2, n.Connections())
		publish("one1")
		publish("one2")
		publish("two")
		assert.Equal(t, 2, follower.messages())
		assert.Equal(t, 1, hearer.messages())
		r.Unfollow("one*", follower)
		publish("one1")
		assert.Equal(t, 2, follower.messages())
		assert.Equal(t, 2, hearer.messages())
	})
}

// A user with &redlock:released:* may subscribe to such channels, and not to
// redlock:*: Redis wants the very pattern that the user was given.
func TestWhoMayNotFollowStillListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, publish := listening(t)
		n.SetError("NOPERM this user has no permissions to access one of the channels used as arguments", "PSUBSCRIBE")
		follower, hearer := &hearer{}, &hearer{}
		r.Listen(channel, hearer)
		r.Follow("redlock:*", follower)
		require.ErrorContains(t, follower.subscriptions()[0], "NOPERM")
		requireSubscribed(t, hearer)
		publish(channel)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, hearer.messages())
		assert.Empty(t, hearer.subscriptions(), "its connection is another")
	})
}

// While there is no connection, channels that nobody listens to any more are
// forgotten at once.
func TestChannelsThatNobodyListensToDoNotPileUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r, _ := listening(t)
		n.SetError("NOPERM", "SUBSCRIBE")
		r.Listen("stays", &hearer{})
		quiet()
		for i := range 1000 {
			h := &hearer{}
			name := fmt.Sprint(channel, i)
			r.Listen(name, h)
			r.Unlisten(name, h)
		}
		topics, _ := r.Topics()
		assert.LessOrEqual(t, topics, 2)
	})
}
