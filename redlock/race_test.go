package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// trouble makes a minority of nodes sick, in turns and at random, until stop.
// It never lets a node forget a lock that it granted: that is assumed.
func trouble(t *testing.T, c *redlocktest.Cluster, stop <-chan struct{}) {
	t.Helper()
	for !isDone(stop) {
		sick := rand.Perm(c.Len())[:(c.Len()-1)/2]
		for _, i := range sick {
			n := c.Node(i)
			switch rand.N(7) {
			case 0:
				n.Hang()
			case 1:
				n.Stop()
			case 2:
				n.DropReplies(true)
			case 3:
				n.SetError("LOADING", "SET", "EVALSHA", "EVAL")
			case 4:
				n.SetDelay(rand.N(time.Second))
			case 5:
				n.SetReplyDelay(rand.N(time.Second))
			case 6:
				n.DropConnections()
			}
		}
		time.Sleep(rand.N(time.Second))
		for _, i := range sick {
			n := c.Node(i)
			if err := n.Restart(); err != nil {
				t.Error(err)
			}
			n.DropReplies(false)
			n.SetError("")
			n.SetDelay(0)
			n.SetReplyDelay(0)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
	}
}

func TestTwoNeverHoldALockInsideItsValidity(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, n)
				stop := make(chan struct{})
				var wg sync.WaitGroup
				var held, lost, locks atomic.Int64
				var mu sync.Mutex
				valid := map[*redlock.Lock]struct{}{}

				hammer := func(l *redlock.Locker) {
					for !isDone(stop) {
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Second))
						k, err := l.Acquire(ctx, job, redlock.WithTTL(time.Duration(300+rand.N(500))*time.Millisecond))
						cancel()
						if err != nil {
							continue
						}
						locks.Add(1)
						mu.Lock()
						for other := range valid {
							if k.Validity() > 0 && other.Validity() > 0 {
								t.Errorf("two holders: for %v and %v", k.Validity(), other.Validity())
							}
						}
						valid[k] = struct{}{}
						mu.Unlock()
						for range rand.N(5) {
							time.Sleep(rand.N(100 * time.Millisecond))
							if k.Renew(t.Context()) == nil {
								held.Add(1)
							}
						}
						if rand.N(4) > 0 {
							if err := k.Release(t.Context()); errors.Is(err, redlock.ErrLost) {
								lost.Add(1)
							}
						}
						mu.Lock()
						for other := range valid {
							if other.Validity() == 0 {
								delete(valid, other)
							}
						}
						mu.Unlock()
					}
				}
				lockers := make([]*redlock.Locker, 3)
				for i := range lockers {
					lockers[i] = newLocker(t, c, redlock.WithNodeTimeout(100*time.Millisecond))
				}
				for _, l := range lockers {
					for range 2 {
						wg.Go(func() { hammer(l) })
					}
				}
				wg.Go(func() { trouble(t, c, stop) })
				time.Sleep(10 * time.Second)
				close(stop)
				wg.Wait()
				t.Logf("%d locks, %d renewals, %d lost", locks.Load(), held.Load(), lost.Load())
				require.Greater(t, locks.Load(), int64(10))
				time.Sleep(5 * time.Second)
				requireFree(t, c, job)
			})
		})
	}
}

// All methods of one lock at once: for the race detector.
func TestALockIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		for range 15 {
			k := acquired(t, l, job, redlock.WithAutoRenew(true), redlock.WithTTL(20*time.Millisecond))
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { _ = k.Renew(t.Context()) })
				wg.Go(func() { <-k.Done() })
				wg.Go(func() {
					ctx, cancel := k.Context(t.Context())
					defer cancel()
					<-ctx.Done()
				})
				wg.Go(func() { _, cancel := k.Context(t.Context()); cancel() })
				wg.Go(func() { _, _, _, _ = k.Validity(), k.Err(), k.Token(), k.FencingToken() })
				wg.Go(func() {
					time.Sleep(rand.N(40 * time.Millisecond))
					_ = k.Release(t.Context())
				})
			}
			wg.Wait()
			synctest.Wait()
			requireFree(t, c, job)
		}
	})
}
