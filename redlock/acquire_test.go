package redlock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestAFreeNameIsLockedOnEveryNode(t *testing.T) {
	for _, n := range []int{1, 3, 5, 7} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, n)
				l := coldLocker(t, c, redlock.WithOwner("worker 7"))
				k := acquired(t, l, job)
				requireHolders(t, c, k, n)
				require.Equal(t, job, k.Name())
				require.Equal(t, []string{job}, k.Names())
				require.Equal(t, "worker 7", k.Owner())
				require.Zero(t, k.FencingToken())
				require.NoError(t, k.Err())
				_, ttl, _ := c.Node(0).Get(job)
				require.Equal(t, redlock.DefaultTTL, ttl)
			})
		})
	}
}

func TestAHeldNameIsTaken(t *testing.T) {
	for _, n := range []int{1, 3, 5, 7} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, n)
				holder, other := newLocker(t, c), newLocker(t, c)
				k := acquired(t, holder, job)
				synctest.Wait()

				for _, l := range []*redlock.Locker{holder, other} {
					_, err := l.TryAcquire(t.Context(), job)
					requireOutcome(t, err, redlock.ErrTaken)
					failed := requireQuorumError(t, err)
					require.Equal(t, "acquire", failed.Op)
					require.Equal(t, []string{job}, failed.Names)
					require.Equal(t, []string{job}, failed.Held)
					require.Equal(t, n/2+1, failed.Quorum)
					require.Zero(t, failed.Granted)
					require.Zero(t, failed.Failed)
					require.GreaterOrEqual(t, failed.Refused, n/2+1)
					require.Len(t, failed.Nodes, n)
				}
				require.Positive(t, k.Validity())
				requireHolders(t, c, k, n)
			})
		})
	}
}

func TestTheTextOfATakenLockIsOneLineThatCountsTheVotes(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		acquired(t, l, job)
		_, err := l.TryAcquire(t.Context(), job)
		require.EqualError(t, err, `redlock: acquire "job": others hold the lock: 0 granted of 1 needed, 1 refused, 0 failed`)
	})
}

func TestALockNeedsAQuorumOfTheConfiguredNodes(t *testing.T) {
	for _, n := range []int{1, 3, 5, 7} {
		for down := range n + 1 {
			t.Run(fmt.Sprintf("%d of %d down", down, n), func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, n)
					l := coldLocker(t, c)
					each(c, upTo(down), (*redlocktest.Node).Stop)

					k, err := l.TryAcquire(t.Context(), job)
					if n-down >= n/2+1 {
						require.NoError(t, err)
						requireHolders(t, c, k, n-down)
						require.NoError(t, k.Release(t.Context()))
						requireFree(t, c, job)
						return
					}
					requireOutcome(t, err, redlock.ErrNoQuorum)
					failed := requireQuorumError(t, err)
					require.Equal(t, down, failed.Failed)
					require.Equal(t, n-down, failed.Granted, "the others are heard, too")
					require.Zero(t, failed.Refused)
					require.Empty(t, failed.Held)
					require.Len(t, failed.Nodes, n)
					for i, node := range failed.Nodes {
						require.Equal(t, c.Node(i).Addr(), node.Addr)
						require.Equal(t, "acquire", node.Op)
						if i < down {
							require.ErrorContains(t, node.Err, "connection refused")
							require.Contains(t, err.Error(), node.Addr)
						} else {
							require.NoError(t, node.Err)
						}
					}
					requireFree(t, c, job)
				})
			})
		}
	}
}

func TestNodesThatDieTogetherAreAllNamed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		each(c, []int{0, 2, 4}, (*redlocktest.Node).Stop)
		synctest.Wait()

		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrNoQuorum)
		failed := requireQuorumError(t, err)
		require.Equal(t, 3, failed.Failed)
		require.Equal(t, 2, failed.Granted)
		for i, node := range failed.Nodes {
			if i%2 == 0 {
				require.Error(t, node.Err)
				require.Contains(t, err.Error(), node.Addr)
			} else {
				require.NoError(t, node.Err)
			}
		}
		requireFree(t, c, job)
	})
}

// foreign puts another owner's key on some nodes, each its own.
func foreign(c *redlocktest.Cluster, numbers ...int) map[string]int {
	for _, i := range numbers {
		c.Node(i).Set(job, fmt.Sprintf("other %d", i), time.Minute)
	}
	return c.Holders(job)
}

func TestASplitVoteIsTakenAndUndone(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		before := foreign(c, 0, 1, 2)

		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrTaken)
		failed := requireQuorumError(t, err)
		require.Equal(t, 3, failed.Refused)
		synctest.Wait()
		require.Equal(t, before, c.Holders(job), "our votes are gone, theirs are not")
	})
}

func TestAMinorityOfOtherOwnersDoesNotMatter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		before := foreign(c, 0, 1)
		k := acquired(t, l, job)
		requireHolders(t, c, k, 3)
		require.NoError(t, k.Release(t.Context()))
		synctest.Wait()
		require.Equal(t, before, c.Holders(job))
	})
}

func TestARefusalBesideDeadNodesIsTaken(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		foreign(c, 0, 1)
		each(c, []int{2, 3}, (*redlocktest.Node).Stop)
		synctest.Wait()

		_, err := l.TryAcquire(t.Context(), job)
		requireOutcome(t, err, redlock.ErrTaken)
		failed := requireQuorumError(t, err)
		for _, i := range []int{2, 3} {
			require.Error(t, failed.Nodes[i].Err, "a node that failed shows, though others decided")
			require.Contains(t, err.Error(), c.Node(i).Addr())
		}
	})
}

func TestSeveralNamesAreLockedTogetherOrNotAtAll(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		names := []string{"c", "a", "b", "a"}
		k, err := l.TryAcquireAll(t.Context(), names)
		require.NoError(t, err)
		require.Equal(t, []string{"c", "a", "b", "a"}, names, "the caller's slice is the caller's")
		require.Equal(t, "a", k.Name())
		require.Equal(t, []string{"a", "b", "c"}, k.Names())
		requireHolders(t, c, k, 5)

		_, err = l.TryAcquireAll(t.Context(), []string{"x", "c", "d", "b"})
		requireOutcome(t, err, redlock.ErrTaken)
		failed := requireQuorumError(t, err)
		require.Equal(t, []string{"b", "c", "d", "x"}, failed.Names)
		require.Equal(t, []string{"b", "c"}, failed.Held)
		require.Contains(t, err.Error(), `others hold the lock ("b", "c")`)
		requireFree(t, c, "d", "x")

		require.NoError(t, k.Release(t.Context()))
		requireFree(t, c, "a", "b", "c")
	})
}

func TestNamesOfALockCannotBeChangedFromOutside(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		k, err := l.TryAcquireAll(t.Context(), []string{"a", "b"})
		require.NoError(t, err)
		k.Names()[0] = "z"
		require.Equal(t, []string{"a", "b"}, k.Names())
	})
}

func TestAHungMinorityCostsNothing(t *testing.T) {
	for _, delay := range []time.Duration{0, 40 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				each(c, []int{0, 1}, (*redlocktest.Node).Hang)
				each(c, []int{2, 3, 4}, func(n *redlocktest.Node) { n.SetDelay(delay) })

				var k *redlock.Lock
				require.Equal(t, delay, took(func() { k = acquired(t, l, job) }))
				require.Equal(t, delay, took(func() { require.NoError(t, k.Renew(t.Context())) }))
				require.Equal(t, delay, took(func() { require.NoError(t, k.Release(t.Context())) }))
			})
		})
	}
}

func TestAHungMajorityCostsTheNodeTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{redlock.DefaultNodeTimeout, 80 * time.Millisecond} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				// Whatever the TTL is.
				l := newLocker(t, c, redlock.WithNodeTimeout(timeout), redlock.WithTTL(time.Hour))
				each(c, []int{0, 1, 2}, (*redlocktest.Node).Hang)
				elapsed := took(func() {
					_, err := l.TryAcquire(t.Context(), job)
					requireOutcome(t, err, redlock.ErrNoQuorum)
					failed := requireQuorumError(t, err)
					require.Equal(t, 3, failed.Failed)
					for _, i := range upTo(3) {
						require.ErrorContains(t, failed.Nodes[i].Err, "no answer within the node timeout")
					}
				})
				require.Equal(t, timeout, elapsed)
				// Now that they are known to be sick, not even that.
				elapsed = took(func() {
					_, err := l.TryAcquire(t.Context(), job)
					requireOutcome(t, err, redlock.ErrNoQuorum)
				})
				require.LessOrEqual(t, elapsed, 25*time.Millisecond)
				requireFree(t, c, job)
			})
		})
	}
}

func TestNodesThatCannotBeDialledCostTheNodeTimeout(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		each(c, upTo(2), (*redlocktest.Node).Hang)
		l := coldLocker(t, c)
		elapsed := took(func() {
			_, err := l.TryAcquire(t.Context(), job)
			requireOutcome(t, err, redlock.ErrNoQuorum)
		})
		require.Equal(t, redlock.DefaultNodeTimeout, elapsed)
	})
}

func TestEveryAttemptHasAFreshToken(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		tap := newWiretap(c)
		l := newLocker(t, c, redlock.WithDialer(tap.Dial))
		c.Node(0).Set(job, "other", 0)

		const attempts = 20
		before := len(tap.tokens())
		_, err := l.Acquire(t.Context(), job, redlock.WithMaxAttempts(attempts))
		requireOutcome(t, err, redlock.ErrTaken)
		synctest.Wait()
		seen := tap.tokens()[before:]
		slices.Sort(seen)
		require.Len(t, slices.Compact(seen), attempts)
	})
}

func TestAcquireMakesNoMoreThanTheMaximumOfAttempts(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 1)
		l := newLocker(t, c)
		c.Node(0).Set(job, "other", 0)
		for _, most := range []int{1, 2, 7} {
			before := calls(c)
			_, err := l.Acquire(t.Context(), job, redlock.WithMaxAttempts(most))
			requireOutcome(t, err, redlock.ErrTaken)
			require.Equal(t, before[0]+1+most, calls(c)[0],
				"a refusal of the plain SET, then one each by the script, and nothing to undo")
		}
	})
}

func TestTheEndOfTheHoldersTTLWakesAWaiter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		holder := newLocker(t, c)
		l := newLocker(t, c)
		acquired(t, holder, job, redlock.WithTTL(3*time.Second))
		require.NoError(t, holder.Close(), "nobody will tell")

		elapsed := took(func() {
			k, err := l.Acquire(t.Context(), job, redlock.WithRetryDelay(time.Hour, time.Hour))
			require.NoError(t, err)
			requireHolders(t, c, k, 5)
		})
		require.GreaterOrEqual(t, elapsed, 3*time.Second)
		require.LessOrEqual(t, elapsed, 3*time.Second+5*time.Millisecond)
	})
}

func TestAWaiterPollsForAHolderThatTellsNothing(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.Set(job, "other library", 0) })
		time.AfterFunc(10*time.Second, func() {
			each(c, upTo(3), func(n *redlocktest.Node) { n.Delete(job) })
		})
		elapsed := took(func() {
			k, err := l.Acquire(t.Context(), job)
			require.NoError(t, err)
			require.Positive(t, k.Validity())
		})
		require.LessOrEqual(t, elapsed, 10*time.Second+10*redlock.DefaultMaxRetryDelay)
	})
}

func TestAReleaseHandsTheLockToAWaiter(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		holder, l := newLocker(t, c), newLocker(t, c)
		k := acquired(t, holder, job)
		time.AfterFunc(4*time.Second, func() { require.NoError(t, k.Release(t.Context())) })
		elapsed := took(func() {
			_, err := l.Acquire(t.Context(), job)
			require.NoError(t, err)
		})
		require.GreaterOrEqual(t, elapsed, 4*time.Second)
		require.LessOrEqual(t, elapsed, 4*time.Second+redlock.DefaultMaxRetryDelay)
	})
}

// Five contenders on split votes must not stay at odds.
func TestManyContendersAllGetTheLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(time.Millisecond) })
		results := make(chan error)
		const contenders = 5
		for range contenders {
			l := newLocker(t, c)
			go func() {
				k, err := l.Acquire(t.Context(), job)
				if err == nil {
					err = k.Release(t.Context())
				}
				results <- err
			}()
		}
		elapsed := took(func() {
			for range contenders {
				require.NoError(t, <-results)
			}
		})
		require.Less(t, elapsed, 5*time.Second)
		requireFree(t, c, job)
	})
}

// A failed attempt must not go on as if it had succeeded.
func TestAFailedAttemptIsNotRenewed(t *testing.T) {
	tests := map[string]func(t *testing.T, c *redlocktest.Cluster){
		"taken":       func(_ *testing.T, c *redlocktest.Cluster) { foreign(c, upTo(5)...) },
		"split":       func(_ *testing.T, c *redlocktest.Cluster) { foreign(c, 0, 1, 2) },
		"unreachable": func(_ *testing.T, c *redlocktest.Cluster) { each(c, upTo(3), (*redlocktest.Node).Stop) },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				l := newLocker(t, c)
				prepare(t, c)
				_, err := l.TryAcquire(t.Context(), job, redlock.WithAutoRenew(true))
				require.Error(t, err)
				time.Sleep(time.Second) // the undoing
				before := calls(c)
				time.Sleep(2 * redlock.DefaultTTL)
				require.Equal(t, before, calls(c), "nothing was sent for it any more")
			})
		})
	}
}

func TestAnErrorOfANodeThatGrantedIsUndone(t *testing.T) {
	for name, reply := range map[string]string{
		"error":   "-ERR the key was set all the same\r\n",
		"garbage": ":-7\r\n",
		"nothing": "$-1\r\n",
		"array":   "*1\r\n:5\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				tap := newWiretap(c)
				l := newLocker(t, c, redlock.WithDialer(tap.Dial))
				tap.onReply(func(addr string, got []byte) []byte {
					if addr == c.Node(2).Addr() || string(got) != "+OK\r\n" && string(got) != ":0\r\n" {
						return got
					}
					return []byte(reply)
				})
				_, err := l.TryAcquire(t.Context(), job)
				requireOutcome(t, err, redlock.ErrNoQuorum)
				failed := requireQuorumError(t, err)
				require.Equal(t, 2, failed.Failed)
				require.Equal(t, 1, failed.Granted)
				tap.onReply(nil)
				time.Sleep(time.Second)
				requireFree(t, c, job)
			})
		})
	}
}

// A node error shows through errors.As, whichever node it is.
func TestNodeErrorsAreFoundThroughTheQuorumError(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		c.Node(1).Stop()
		c.Node(2).Stop()
		synctest.Wait()
		_, err := l.TryAcquire(t.Context(), job)
		var node *redlock.NodeError
		require.ErrorAs(t, err, &node)
		require.Equal(t, c.Node(1).Addr(), node.Addr)
		require.Contains(t, node.Error(), node.Addr+": acquire: ")
		require.ErrorContains(t, errors.Unwrap(node), "refused")
	})
}
