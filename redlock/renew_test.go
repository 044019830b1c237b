package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestARenewalBeginsTheTTLAnew(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		for range 20 {
			time.Sleep(7 * time.Second)
			require.NoError(t, k.Renew(t.Context()))
			require.Equal(t, 9898*time.Millisecond, k.Validity())
			synctest.Wait()
			for i := range 5 {
				_, ttl, ok := c.Node(i).Get(job)
				require.True(t, ok)
				require.Equal(t, redlock.DefaultTTL, ttl)
			}
		}
	})
}

func TestARenewalCountsFromBeforeItWasSent(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		for i := range 5 {
			c.Node(i).SetReplyDelay(time.Duration(10*(i+1)) * time.Millisecond)
		}
		require.Equal(t, 30*time.Millisecond, took(func() { require.NoError(t, k.Renew(t.Context())) }))
		require.Equal(t, 9898*time.Millisecond-30*time.Millisecond, k.Validity())
	})
}

func TestARenewalAfterTheDeadlineSendsNothing(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched %v", watched), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				if watched {
					_ = k.Done()
				}
				// The drift is not over: the nodes would still renew.
				time.Sleep(9898 * time.Millisecond)
				requireHolders(t, c, k, 5)
				before := commands(c)
				requireOutcome(t, k.Renew(t.Context()), redlock.ErrLost)
				require.Equal(t, before, commands(c))
				require.Zero(t, k.Validity())
			})
		})
	}
}

// A renewal that was sent in time and answered after the deadline comes too
// late: whoever looked in between saw that the lock was over.
func TestAnAnswerAfterTheDeadlineDoesNotReviveTheLock(t *testing.T) {
	for name, watch := range map[string]func(*redlock.Lock){
		"nobody watched":  func(*redlock.Lock) {},
		"Done is watched": func(k *redlock.Lock) { _ = k.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				watch(k)
				each(c, upTo(5), func(n *redlocktest.Node) { n.SetReplyDelay(200 * time.Millisecond) })
				time.Sleep(9800 * time.Millisecond)
				renewed := make(chan error, 1)
				go func() { renewed <- k.Renew(t.Context()) }()
				time.Sleep(150 * time.Millisecond)
				require.Zero(t, k.Validity())
				requireOutcome(t, <-renewed, redlock.ErrLost)
				require.Zero(t, k.Validity(), "once 0, always 0")
				requireOutcome(t, k.Err(), redlock.ErrLost)
				require.True(t, isDone(k.Done()))
				requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
				time.Sleep(time.Second)
				requireFree(t, c, job)
			})
		})
	}
}

func TestALockThatAMajorityLostIsLost(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for reason, strike := range map[string]func(*redlocktest.Node){
			"deleted": func(n *redlocktest.Node) { n.Delete(job) },
			"stolen":  func(n *redlocktest.Node) { n.Set(job, "thief", time.Minute) },
		} {
			t.Run(fmt.Sprintf("%s on %d of %d", reason, n/2+1, n), func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, n)
					l := newLocker(t, c)
					k := acquired(t, l, job)
					synctest.Wait()
					ctx, cancel := k.Context(t.Context())
					defer cancel()
					each(c, upTo(n/2+1), strike)

					err := k.Renew(t.Context())
					requireOutcome(t, err, redlock.ErrLost)
					failed := requireQuorumError(t, err)
					require.Equal(t, "renew", failed.Op)
					require.Equal(t, n/2+1, failed.Refused)
					require.Len(t, failed.Nodes, n)
					require.ErrorContains(t, err, `redlock: lock "job" lost: `+reason)
					for i := range n/2 + 1 {
						require.ErrorContains(t, err, c.Node(i).Addr())
					}
					require.Equal(t, err, k.Err())
					require.Equal(t, err, context.Cause(ctx))
					require.True(t, isDone(k.Done()))
					require.Zero(t, k.Validity())
					require.Equal(t, err, k.Renew(t.Context()), "it stays lost")
					requireOutcome(t, k.Release(t.Context()), redlock.ErrLost)
					synctest.Wait()
					require.Zero(t, c.Holders(job)[k.Token()], "what was left of it is deleted")
					if reason == "stolen" {
						require.Equal(t, n/2+1, c.Holders(job)["thief"])
					}
				})
			})
		}
	}
}

func TestALockThatAMinorityLostIsKept(t *testing.T) {
	for fault, strike := range map[string]func(*redlocktest.Node){
		"deleted": func(n *redlocktest.Node) { n.Delete(job) },
		"stolen":  func(n *redlocktest.Node) { n.Set(job, "thief", time.Minute) },
		"stopped": (*redlocktest.Node).Stop,
		"hung":    (*redlocktest.Node).Hang,
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				synctest.Wait()
				each(c, []int{1, 3}, strike)
				for range 10 {
					require.NoError(t, k.Renew(t.Context()))
					require.Equal(t, 9898*time.Millisecond, k.Validity())
					time.Sleep(5 * time.Second)
				}
			})
		})
	}
}

func TestAFailedRenewalChangesNothing(t *testing.T) {
	for fault, strike := range map[string]func(*redlocktest.Node){
		"stopped": (*redlocktest.Node).Stop,
		"hung":    (*redlocktest.Node).Hang,
		"errors":  func(n *redlocktest.Node) { n.SetError("BUSY", "EVALSHA") },
		"mute":    func(n *redlocktest.Node) { n.DropReplies(true) },
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				time.Sleep(time.Second)
				each(c, []int{0, 1, 2}, strike)
				err := k.Renew(t.Context())
				requireOutcome(t, err, redlock.ErrNoQuorum)
				failed := requireQuorumError(t, err)
				require.Equal(t, 3, failed.Failed)
				require.NoError(t, k.Err())
				require.False(t, isDone(k.Done()))
				time.Sleep(4 * time.Second)
				requireHolders(t, c, k, 5)
				// Not shortened by the nodes, nor by us.
				for i := range 5 {
					_, ttl, _ := c.Node(i).Get(job)
					require.GreaterOrEqual(t, ttl, 4*time.Second)
				}
				require.Equal(t, 9898*time.Millisecond-time.Since(start(k)), k.Validity())
			})
		})
	}
}

// start returns when a lock of the default TTL began, from its validity.
func start(k *redlock.Lock) time.Time {
	return time.Now().Add(k.Validity()).Add(-9898 * time.Millisecond)
}

func TestAFailedRenewalMayBeTriedAgain(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		began := time.Now()
		each(c, upTo(2), func(n *redlocktest.Node) { n.SetError("BUSY", "EVALSHA") })
		time.Sleep(time.Second)
		requireOutcome(t, k.Renew(t.Context()), redlock.ErrNoQuorum)
		require.Equal(t, 9898*time.Millisecond-time.Since(began), k.Validity(), "the deadline stands")
		each(c, upTo(2), func(n *redlocktest.Node) { n.SetError("") })
		require.NoError(t, k.Renew(t.Context()))
		require.Equal(t, 9898*time.Millisecond, k.Validity())
	})
}

func TestRenewalsAtTheSameTimeAreOne(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		before := calls(c)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(50 * time.Millisecond) })
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := k.Renew(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i, n := range calls(c) {
			require.Equal(t, before[i]+1, n)
		}
		require.NoError(t, k.Renew(t.Context()))
		for i, n := range calls(c) {
			require.Equal(t, before[i]+2, n, "a later one is another")
		}
	})
}

func TestAutoRenewKeepsALockThroughMinorityFaults(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, n)
				l := newLocker(t, c)
				k := acquired(t, l, job, redlock.WithAutoRenew(true))
				done := k.Done()
				for i := range 20 {
					sick := c.Node(i % n)
					if n > 1 {
						switch i % 4 {
						case 0:
							sick.Hang()
						case 1:
							sick.Stop()
						case 2:
							sick.SetError("LOADING", "EVALSHA", "EVAL")
						default:
							sick.Delete(job)
						}
					}
					for range 60 {
						time.Sleep(time.Second)
						require.False(t, isDone(done), "%v", k.Err())
						require.Greater(t, k.Validity(), 5*time.Second)
					}
					if n > 1 && i%4 == 1 {
						require.NoError(t, sick.RestartEmpty())
					}
					sick.Resume()
					sick.SetError("")
					time.Sleep(20 * time.Second)
				}
				require.NoError(t, k.Release(t.Context()))
				time.Sleep(10 * time.Second)
				requireFree(t, c, job)
			})
		})
	}
}

func TestAutoRenewSendsAboutThreePerTTL(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		acquired(t, l, job, redlock.WithAutoRenew(true))
		before := calls(c)[0]
		time.Sleep(1000 * time.Second)
		require.InDelta(t, 315, calls(c)[0]-before, 20)
	})
}

func TestOneSickRenewalDoesNotEndTheRenewing(t *testing.T) {
	for fault, strike := range map[string]struct{ on, off func(*redlocktest.Node) }{
		"hung": {(*redlocktest.Node).Hang, (*redlocktest.Node).Resume},
		"errors": {
			func(n *redlocktest.Node) { n.SetError("BUSY", "EVALSHA", "EVAL") },
			func(n *redlocktest.Node) { n.SetError("") },
		},
		"stopped": {(*redlocktest.Node).Stop, func(n *redlocktest.Node) { _ = n.Restart() }},
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				k := acquired(t, l, job, redlock.WithAutoRenew(true))
				for range 10 {
					synctest.Wait()
					each(c, upTo(5), strike.on)
					time.Sleep(5 * time.Second)
					require.NoError(t, k.Err())
					each(c, upTo(5), strike.off)
					time.Sleep(10 * time.Second)
					require.NoError(t, k.Err())
					requireHolders(t, c, k, 5)
				}
				other := acquired(t, l, "other", redlock.WithAutoRenew(true))
				time.Sleep(time.Minute)
				require.NoError(t, other.Err(), "nor that of later locks")
			})
		})
	}
}

func TestAutoRenewFindsOutThatTheLockIsLost(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithAutoRenew(true))
		synctest.Wait()
		each(c, upTo(2), func(n *redlocktest.Node) { n.Set(job, "thief", time.Minute) })
		elapsed := took(func() { <-k.Done() })
		require.LessOrEqual(t, elapsed, redlock.DefaultTTL/3)
		requireOutcome(t, k.Err(), redlock.ErrLost)
		require.ErrorContains(t, k.Err(), "stolen")
		before := commands(c)
		time.Sleep(time.Minute)
		require.Equal(t, before, commands(c), "a lost lock is not renewed")
	})
}

func TestAutoRenewEndsWithTheRelease(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithAutoRenew(true))
		time.Sleep(time.Minute)
		require.NoError(t, k.Release(t.Context()))
		before := commands(c)
		time.Sleep(time.Minute)
		require.Equal(t, before, commands(c))
		requireOutcome(t, k.Renew(t.Context()), redlock.ErrReleased)
		require.Equal(t, before, commands(c))
	})
}

// Renewals, refills among them, and a release in the same moment: whatever
// comes first, no key may be left.
func TestRacesOfReleaseAndRenewLeaveNoKey(t *testing.T) {
	const workers = 10
	races := 500 // each
	if testing.Short() {
		races = 20
	}
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		race := func(name string, i int) error {
			k, err := l.TryAcquire(t.Context(), name, redlock.WithAutoRenew(i%3 == 0))
			if err != nil {
				return err
			}
			if i%4 == 0 {
				c.Node(i / 4 % 3).Delete(name) // to be refilled
			}
			renewed := make(chan error, 1)
			go func() { renewed <- k.Renew(t.Context()) }()
			if i%2 == 0 {
				runtime.Gosched()
			}
			if err := k.Release(t.Context()); err != nil {
				if deleted := i%4 == 0; !deleted || !errors.Is(err, redlock.ErrLost) {
					return err // on three nodes the one may have been needed
				}
			}
			if err := <-renewed; err != nil && !errors.Is(err, redlock.ErrReleased) && !errors.Is(err, redlock.ErrLost) {
				return err
			}
			return nil
		}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range races {
					// Each its own name: a key that is left stays to be seen.
					if err := race(fmt.Sprintf("%s %d %d", job, w, i), i+w); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		for i := range 3 {
			require.Empty(t, c.Node(i).Keys())
		}
	})
}

func TestAMaximumHoldEndsTheLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithAutoRenew(true), redlock.WithMaxHold(time.Minute))
		require.Equal(t, time.Minute, took(func() { <-k.Done() }))
		requireOutcome(t, k.Err(), redlock.ErrLost)
		require.EqualError(t, k.Err(), `redlock: lock "job" lost: held for the maximum of 1m0s`)
		before := commands(c)
		time.Sleep(redlock.DefaultTTL)
		require.Equal(t, before, commands(c))
		requireFree(t, c, job)
	})
}

func TestAMaximumHoldBoundsTheValidity(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		k := acquired(t, l, job, redlock.WithMaxHold(12*time.Second))
		require.Equal(t, 9898*time.Millisecond, k.Validity())
		time.Sleep(5 * time.Second)
		require.NoError(t, k.Renew(t.Context()))
		require.Equal(t, 7*time.Second, k.Validity())
		short := acquired(t, l, "short", redlock.WithMaxHold(2*time.Second))
		require.Equal(t, 2*time.Second, short.Validity())
		require.NoError(t, short.Renew(t.Context()))
		require.Equal(t, 2*time.Second, short.Validity())
	})
}

func TestARenewalRefillsNodesThatLostTheKey(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k, err := l.TryAcquireAll(t.Context(), []string{job, "b"})
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, c.Node(0).RestartEmpty())
		c.Node(1).Delete(job)
		time.Sleep(2 * time.Second)
		require.NoError(t, k.Renew(t.Context()))
		requireHolders(t, c, k, 5)
		for i := range 5 {
			_, ttl, _ := c.Node(i).Get(job)
			require.LessOrEqual(t, ttl, redlock.DefaultTTL)
			require.Greater(t, ttl, redlock.DefaultTTL-100*time.Millisecond)
		}
		require.NoError(t, k.Release(t.Context()))
		requireFree(t, c, job, "b")
	})
}

func TestARefillTakesNoKeyOfOthers(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		synctest.Wait()
		c.Node(0).Set(job, "other", time.Minute)
		c.Node(1).Delete(job)
		require.NoError(t, k.Renew(t.Context()))
		requireHolders(t, c, k, 4)
		require.Equal(t, 1, c.Holders(job)["other"])
	})
}

// A straggler's refusal comes after the verdict; its node is refilled, too.
func TestASlowNodeIsRefilledToo(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		synctest.Wait()
		c.Node(4).Delete(job)
		c.Node(4).SetReplyDelay(300 * time.Millisecond)
		require.Zero(t, took(func() { require.NoError(t, k.Renew(t.Context())) }))
		requireHolders(t, c, k, 4)
		time.Sleep(300 * time.Millisecond)
		requireHolders(t, c, k, 5)
		_, ttl, _ := c.Node(4).Get(job)
		require.Equal(t, redlock.DefaultTTL-300*time.Millisecond, ttl, "counted from when the renewal began")
	})
}

func TestNodesThatRestartEmptyOneAfterAnotherDoNotLoseTheLock(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, n)
				l := newLocker(t, c)
				k := acquired(t, l, job)
				synctest.Wait() // a node that dies with the grant under way stays in doubt
				for i := range 3 * n {
					require.NoError(t, c.Node(i%n).RestartEmpty())
					time.Sleep(2 * time.Second)
					require.NoError(t, k.Renew(t.Context()))
					requireHolders(t, c, k, n)
				}
			})
		})
	}
}

func TestTwoOfThreeNodesThatRestartEmptyBeforeARenewalLoseTheLock(t *testing.T) {
	for _, refill := range []bool{true, false} {
		t.Run(fmt.Sprintf("refill %v", refill), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				k := acquired(t, l, job, redlock.WithRefill(refill))
				synctest.Wait()
				each(c, upTo(2), func(n *redlocktest.Node) { require.NoError(t, n.RestartEmpty()) })
				time.Sleep(2 * time.Second)
				err := k.Renew(t.Context())
				requireOutcome(t, err, redlock.ErrLost)
				require.ErrorContains(t, err, "deleted")
				synctest.Wait()
				require.Equal(t, 1, c.Holders(job)[k.Token()], "and nothing is refilled")
			})
		})
	}
}

func TestANodeThatWasInDoubtIsRefilledOnceItHasRenewed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		c.Node(2).Hang()
		k := acquired(t, l, job, redlock.WithTTL(time.Minute))
		time.Sleep(time.Second) // the node timeout cuts the connection, with the acquire in flight
		c.Node(2).Resume()      // and there it is executed, late
		time.Sleep(5 * time.Second)
		require.Equal(t, map[string]int{k.Token(): 3}, c.Holders(job))
		require.NoError(t, k.Renew(t.Context()), "this ends the doubt")
		synctest.Wait()

		require.NoError(t, c.Node(2).RestartEmpty())
		time.Sleep(5 * time.Second)
		require.NoError(t, k.Renew(t.Context()))
		synctest.Wait()
		require.Equal(t, map[string]int{k.Token(): 3}, c.Holders(job))
		require.NoError(t, k.Release(t.Context()))
	})
}

// The node executes a refill that was given up after the release, which found
// nothing.
func TestARefillThatIsExecutedAfterTheReleaseIsUndone(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithTTL(time.Minute))
		synctest.Wait()
		node := c.Node(2)
		node.Delete(job)
		node.SetReplyDelay(50 * time.Millisecond)
		require.NoError(t, k.Renew(t.Context()))
		time.Sleep(40 * time.Millisecond)
		node.SetReplyDelay(0)
		node.SetDelay(3 * time.Second)
		time.Sleep(20 * time.Millisecond) // the refill is sent
		node.SetDelay(0)
		time.Sleep(2 * time.Second) // it has been given up
		before := calls(c)[2]
		require.NoError(t, k.Release(t.Context()))
		synctest.Wait()
		require.Greater(t, calls(c)[2], before, "over a new connection")
		requireFree(t, c, job)
		time.Sleep(1100 * time.Millisecond) // the old one is executed
		time.Sleep(2 * time.Second)         // the release is repeated
		requireFree(t, c, job)
	})
}

func TestWithoutRefillNodesStayEmpty(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithRefill(false))
		synctest.Wait()
		c.Node(0).Delete(job)
		for range 3 {
			require.NoError(t, k.Renew(t.Context()))
			requireHolders(t, c, k, 2)
		}
		c.Node(1).Delete(job)
		requireOutcome(t, k.Renew(t.Context()), redlock.ErrLost)
	})
}

// A refill must not be counted: a renewal that a quorum did not grant has
// failed, even if the nodes could be refilled.
func TestARefillIsNotCountedTowardsTheRenewal(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		synctest.Wait()
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.Delete(job) })
		each(c, []int{2}, func(n *redlocktest.Node) { n.SetError("BUSY", "EVALSHA") })
		requireOutcome(t, k.Renew(t.Context()), redlock.ErrNoQuorum)
		requireHolders(t, c, k, 3)
	})
}

// A node that has lost the keys has lost the counter with them.
func TestARefillBringsTheFencingCounterBack(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		ahead := newBentClock()
		ahead.set(time.Hour)
		l, other := newLocker(t, c, redlock.WithClock(ahead)), newLocker(t, c)
		k := acquired(t, l, job, redlock.WithFencing(true))
		for i := range 5 {
			require.NoError(t, c.Node(i).RestartEmpty())
			time.Sleep(time.Second)
			require.NoError(t, k.Renew(t.Context()))
			synctest.Wait()
		}
		requireHolders(t, c, k, 5)
		require.NoError(t, k.Release(t.Context()))
		next := acquired(t, other, job, redlock.WithFencing(true))
		require.Greater(t, next.FencingToken(), k.FencingToken())
	})
}

// The guard is about acquisitions. A lock that a quorum has just renewed
// endangers nobody else's, so it survives what it would survive without.
func TestALockSurvivesRestartsOneByOneUnderTheRestartGuard(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		time.Sleep(time.Hour)
		l := newLocker(t, c, redlock.WithRestartGuard(time.Minute), redlock.WithFencing(true))
		k := acquired(t, l, job)
		for i := range 5 {
			require.NoError(t, c.Node(i).RestartEmpty())
			time.Sleep(time.Second)
			require.NoError(t, k.Renew(t.Context()), "restart %d", i)
			time.Sleep(time.Second)
		}
		requireHolders(t, c, k, 5)
		_, err := l.TryAcquire(t.Context(), "another")
		requireOutcome(t, err, redlock.ErrNoQuorum)
		_, err = l.Resume(t.Context(), []string{job}, k.Token())
		require.NoError(t, err, "a number can be drawn for a lock that is held")
	})
}

// A refill that was not sent says nothing about the other keys of the lock.
func TestARefillThatWasNotSentLeavesTheNodeToBeReleased(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k, err := l.AcquireAll(t.Context(), []string{"a", "b"}, redlock.WithTTL(10*time.Minute))
		require.NoError(t, err)
		synctest.Wait()
		c.Node(2).Delete("a")
		// The last node says so at once, and is down when the others have renewed.
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetReplyDelay(100 * time.Millisecond) })
		renewed := make(chan error, 1)
		go func() { renewed <- k.Renew(t.Context()) }()
		time.Sleep(50 * time.Millisecond)
		c.Node(2).Stop()
		require.NoError(t, <-renewed)
		each(c, []int{0, 1}, func(n *redlocktest.Node) { n.SetReplyDelay(0) })
		require.NoError(t, k.Release(t.Context()))
		require.NoError(t, c.Node(2).Restart())
		time.Sleep(time.Minute)
		requireFree(t, c, "a", "b")
	})
}

func TestALockThatExpiredSaysWhyItWasNotRenewed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		k := acquired(t, newLocker(t, c), job, redlock.WithAutoRenew(true))
		each(c, []int{0, 1}, func(n *redlocktest.Node) {
			n.SetError("READONLY You can't write against a read only replica.", "EVALSHA")
		})
		<-k.Done()
		requireOutcome(t, k.Err(), redlock.ErrLost)
		for _, node := range []int{0, 1} {
			require.ErrorContains(t, k.Err(), c.Addrs()[node])
		}
		require.ErrorContains(t, k.Err(), "READONLY")
	})
}
