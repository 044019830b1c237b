package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

// Whatever happens to the node, every call is delivered exactly once; what is
// said to be never sent has not been executed, and what was answered has;
// results come in the order of the calls.
func TestEveryCallIsDeliveredOnceInAStorm(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster := redlocktest.StartPiped(t, 1)
				address := cluster.Addrs()[0]
				r := newRig(t, address, append(options(seed), pool.WithDialer(cluster.Dial))...)
				if seed%4 == 3 {
					r = wrap(t, users(func(ctx context.Context, network, _ string) (net.Conn, error) {
						return cluster.Dial(ctx, network, address)
					}), options(seed)...)
				}
				storm(t, cluster.Node(0), r, seed)
			})
		})
	}
}

func options(seed uint64) []pool.Option {
	if seed%3 == 0 {
		return []pool.Option{pool.WithRestartGuard(20 * time.Millisecond)}
	}
	return nil
}

const (
	callersInStorm = 4
	atOnce         = 8
)

func storm(t *testing.T, node *redlocktest.Node, r *rig, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	flushes := seed%2 == 0
	length := 50 + rng.IntN(400) // ms until Close

	b := newBox()
	var starting sync.Mutex // makes "the order of the calls" mean something
	started := 0
	var callers sync.WaitGroup
	for caller := range callersInStorm {
		rng := rand.New(rand.NewPCG(seed, uint64(caller)+1))
		callers.Go(func() {
			for r.Stat().State != pool.Closed {
				for range 1 + rng.IntN(atOnce) {
					starting.Lock()
					started++
					id := r.send(b, acquire(fmt.Sprint("key", started), "token"))
					assert.Equal(t, started, id)
					starting.Unlock()
				}
				time.Sleep(time.Duration(rng.IntN(10_000)) * time.Microsecond)
			}
		})
	}
	var faults sync.WaitGroup
	faults.Go(func() {
		for r.Stat().State != pool.Closed {
			time.Sleep(time.Duration(rng.IntN(40_000)) * time.Microsecond)
			switch rng.IntN(10) {
			case 0:
				node.Stop()
			case 1, 2:
				require.NoError(t, node.Restart())
			case 3:
				node.Hang()
			case 4, 5:
				node.Resume()
			case 6:
				node.SetDelay(time.Duration(rng.IntN(20)) * time.Millisecond)
			case 7:
				node.DropReplies(rng.IntN(3) == 0)
			case 8:
				node.DropConnections()
			case 9:
				if flushes {
					node.FlushScripts()
				} else {
					node.SetReplyDelay(time.Duration(rng.IntN(20)) * time.Millisecond)
				}
			}
		}
	})
	time.Sleep(time.Duration(length) * time.Millisecond)
	require.NoError(t, r.Close())
	closed := len(b.delivered())
	callers.Wait()
	faults.Wait()
	require.NoError(t, r.Close())

	order := b.delivered()
	assert.LessOrEqual(t, started-closed, callersInStorm*atOnce, "Close left calls undelivered")
	require.Len(t, order, started)
	node.SetDelay(0)
	node.Resume()
	time.Sleep(time.Minute) // what a hung node still had to read

	sent := map[pool.Sent]int{}
	for id := 1; id <= started; id++ {
		result := b.await(t, id) // fails unless there is exactly one
		sent[result.Sent]++
		_, _, executed := node.Get(fmt.Sprint("key", id))
		switch result.Sent {
		case pool.Never:
			require.Error(t, result.Err)
			require.False(t, executed, "call %d: %v", id, result.Err)
		case pool.Maybe:
			require.Error(t, result.Err)
		case pool.Answered:
			require.NoError(t, result.Err)
			require.True(t, executed, "call %d", id)
		}
	}
	if !flushes {
		order = slices.DeleteFunc(order, func(id int) bool { return b.await(t, id).Sent == pool.Never })
		require.True(t, slices.IsSorted(order), "out of order")
	}
	assert.Positive(t, sent[pool.Answered])
	t.Logf("%d answered, %d maybe, %d never", sent[pool.Answered], sent[pool.Maybe], sent[pool.Never])
}
