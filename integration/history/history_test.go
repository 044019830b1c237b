// Histories of clients on real nodes, which are killed, stopped and made to hang and to forget meanwhile.
package history_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/history"
	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

var (
	length = flag.Duration("length", 4*time.Second, "for how long clients contend in each history")
	keep   = flag.String("keep", "", "draw histories into this directory even if there is nothing wrong with them")
)

const (
	ttl     = time.Second
	clients = 8
	// leastHolds and leastFaults are what a history goes on for beyond its length, lest it pass for want of events.
	leastHolds, leastFaults = 40, 6
	patience                = 2 * time.Minute
)

// judge fails the test unless the history is allowed, and draws one that is not.
func judge(t *testing.T, r *history.Recorder) {
	t.Helper()
	v := r.Judge(patience)
	t.Logf("%d locks, judged: %s", r.Claims(), v.Result)
	if v.Result == porcupine.Ok && *keep == "" {
		return
	}
	f, err := os.CreateTemp(*keep, "redlock-history-*.html") // not t.TempDir: it is to outlive the test
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, v.Draw(f.Name()))
	t.Logf("the history is drawn in %s", f.Name())
	require.Equal(t, porcupine.Ok, v.Result, "two holders at once, or a fencing number that did not grow")
}

// A contender is one client of the lock.
type contender struct {
	t      *testing.T
	r      *history.Recorder
	locker *redlock.Locker
	client int
}

// round acquires the lock once, looks at it for a while, and ends it in one of the ways in which locks end.
func (c contender) round(ctx context.Context, name string) {
	waiting, cancel := context.WithTimeout(ctx, 3*ttl)
	defer cancel()
	renewed := rand.N(2) == 0
	called := c.r.Now()
	k, err := c.locker.Acquire(waiting, name, redlock.WithAutoRenew(renewed))
	if err != nil {
		return // it has nothing, whatever the nodes have: whoever gets the lock next is judged
	}
	hold := c.r.Acquired(c.client, name, k.FencingToken(), called)
	for range 1 + rand.N(4) {
		if !c.look(k, hold) {
			hold.Lost()
			_ = k.Release(c.t.Context())
			return
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		if rand.N(4) == 0 {
			_ = k.Renew(ctx) // what comes of it shows when looking
		}
	}
	if !renewed && rand.N(8) == 0 {
		hold.Expired() // a client that crashed
		return
	}
	called = c.r.Now()
	hold.Released(called, k.Release(c.t.Context()) == nil)
}

// look returns false if the lock has ended.
func (c contender) look(k *redlock.Lock, hold *history.Hold) bool {
	asked := c.r.Now()
	left := k.Validity()
	if left > 0 {
		hold.Valid(asked, left)
	}
	return left > 0
}

// play lets clients contend while faults strike, for at least the length of a history.
func play(t *testing.T, c *nodes.Cluster, strike func(n *nodes.Node), opts ...redlock.Option) *history.Recorder {
	r := history.New()
	opts = append(opts, redlock.WithTTL(ttl), redlock.WithFencing(true), redlock.WithNodeTimeout(200*time.Millisecond),
		redlock.WithOutageTolerance(time.Minute))
	faults, stop := 0, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range clients {
		l, err := redlock.New(c.URLs(), opts...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		wg.Go(func() {
			for ctx.Err() == nil {
				contender{t, r, l, i}.round(ctx, fmt.Sprint("job ", i%2))
			}
		})
	}
	wg.Go(func() {
		defer close(stop)
		for begin := time.Now(); time.Since(begin) < *length || faults < leastFaults || r.Claims() < leastHolds; faults++ {
			strike(c.Node(rand.N(c.Len())))
			time.Sleep(rand.N(100 * time.Millisecond))
			if time.Since(begin) > *length+time.Minute {
				t.Errorf("after %d faults there were %d locks only", faults, r.Claims())
				return
			}
		}
	})
	<-stop
	cancel()
	wg.Wait()
	return r
}

// sleepy is for how long a node is down or hangs: mostly shorter than a TTL, sometimes longer.
func sleepy() time.Duration { return rand.N(ttl + ttl/3) }

func TestNodesThatDieAndHangLetNobodyHoldALockTwice(t *testing.T) {
	c := nodes.Start(t, 5, nodes.WithAOF())
	c.Require(nodes.Killing, nodes.Stopping, nodes.Pausing)
	judge(t, play(t, c, func(n *nodes.Node) {
		switch rand.N(3) {
		case 0:
			n.Kill()
			time.Sleep(sleepy() / 4)
			n.Start()
		case 1:
			n.Stop()
			n.Start()
		case 2:
			n.Pause()
			time.Sleep(sleepy())
			n.Resume()
		}
	}))
}

func TestNodesThatForgetLetNobodyHoldALockTwiceUnderTheGuard(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Forgetting, nodes.Pausing)
	judge(t, play(t, c, func(n *nodes.Node) {
		n.RestartEmpty()
		time.Sleep(sleepy() / 2)
	}, redlock.WithRestartGuard(ttl)))
}

// A control. These clients leave out the NX, and so the judge must find them out; or it finds nothing.
func TestClientsThatSetWithoutNXAreFoundOut(t *testing.T) {
	c := nodes.Start(t, 5)
	r := history.New()
	var wg sync.WaitGroup
	var numbers struct {
		sync.Mutex
		last uint64
	}
	for client := range 4 {
		conns := make([]redis.Conn, c.Len())
		for i, n := range c.Nodes() {
			conn, err := n.Dial()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, conn.Close()) })
			conns[i] = conn
		}
		wg.Go(func() {
			for range 20 {
				called, granted := r.Now(), 0
				for _, conn := range conns {
					if reply, err := redis.String(conn.Do("SET", "job", fmt.Sprint("client ", client), "PX", ttl.Milliseconds())); err == nil && reply == "OK" {
						granted++
					}
				}
				if granted <= c.Len()/2 {
					continue
				}
				numbers.Lock()
				numbers.last++
				hold := r.Acquired(client, "job", numbers.last, called) // the numbers are not what is wrong
				numbers.Unlock()
				hold.Valid(r.Now(), ttl/2)
				time.Sleep(rand.N(5 * time.Millisecond))
				hold.Released(r.Now(), true)
			}
		})
	}
	wg.Wait()
	require.Equal(t, porcupine.Illegal, r.Judge(patience).Result)
}

// Another, of the library itself: without the guard, a node that forgot breaks the assumption of the algorithm, and
// two clients hold the lock.
func TestNodesThatForgetAreFoundOutWithoutTheGuard(t *testing.T) {
	c := nodes.Start(t, 5)
	c.Require(nodes.Forgetting, nodes.Killing)
	r := history.New()
	acquire := func(client int) *history.Hold {
		l, err := redlock.New(c.URLs(), redlock.WithTTL(time.Minute), redlock.WithFencing(true))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		called := r.Now()
		k, err := l.Acquire(t.Context(), "job")
		require.NoError(t, err)
		hold := r.Acquired(client, "job", k.FencingToken(), called)
		hold.Valid(r.Now(), k.Validity())
		return hold
	}
	c.Node(3).Kill()
	c.Node(4).Kill()
	first := acquire(0) // of nodes 0 to 2
	c.Node(3).Start()
	c.Node(4).Start()
	c.Node(0).RestartEmpty()
	second := acquire(1) // of nodes 0, 3 and 4
	first.Expired()
	second.Expired()

	v := r.Judge(patience)
	require.Equal(t, porcupine.Illegal, v.Result)
	picture := t.TempDir() + "/history.html"
	require.NoError(t, v.Draw(picture))
	require.FileExists(t, picture)
}
