package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/compat/redsync"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestAMutexIsAKeyWithItsNameAndValueOnAllNodes(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		m := newRedsync(t, c).NewMutex(job)
		require.Equal(t, job, m.Name())
		require.Empty(t, m.Value())
		require.Zero(t, m.Until())

		require.NoError(t, m.Lock())
		synctest.Wait()
		require.Equal(t, map[string]int{m.Value(): 5}, c.Holders(job))
		_, ttl, _ := c.Node(0).Get(job)
		require.Equal(t, 8*time.Second, ttl)
		require.Equal(t, 8*time.Second-80*time.Millisecond-2*time.Millisecond, time.Until(m.Until()))

		ok, err := m.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
		requireFree(t, c)
	})
}

func TestTheValueIsRandomLettersAndTheNameOfTheProcess(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		first := locked(t, rs).Value()
		require.Regexp(t, fmt.Sprintf(`^[A-Za-z0-9_-]{22}\.\S+:%d$`, os.Getpid()), first)
		m := rs.NewMutex("another")
		require.NoError(t, m.Lock())
		require.NotEqual(t, first[:22], m.Value()[:22])
	})
}

func TestALockedMutexIsTakenForOthersAndForItself(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		m := locked(t, rs)
		for _, contender := range []*redsync.Mutex{rs.NewMutex(job), m} {
			err := contender.TryLock()
			require.IsType(t, new(redsync.ErrTaken), err) //nolint:testifylint // by itself: programs assert the type
			require.EqualError(t, err, "lock already taken, locked nodes: [0 1 2 3 4]")
		}
		ok, err := m.Unlock() // still with the value that it holds
		require.NoError(t, err)
		require.True(t, ok)
	})
}

func TestLockGoesOnForAsLongAsItsDelays(t *testing.T) {
	for name, test := range map[string]struct {
		options []redsync.Option
		want    time.Duration
	}{
		"fixed delay":       {[]redsync.Option{redsync.WithTries(4), redsync.WithRetryDelay(time.Second)}, 3 * time.Second},
		"one try":           {[]redsync.Option{redsync.WithTries(1), redsync.WithRetryDelay(time.Second)}, 0},
		"many short delays": {[]redsync.Option{redsync.WithTries(5001), redsync.WithRetryDelay(0)}, 5 * time.Second},
		"longer than a stretch": {
			[]redsync.Option{redsync.WithTries(151), redsync.WithRetryDelay(time.Second)},
			150 * time.Second,
		},
		"delays that grow": {[]redsync.Option{
			redsync.WithTries(5),
			redsync.WithRetryDelayFunc(func(tries int) time.Duration { return time.Duration(tries) * time.Second }),
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
				rs := newRedsync(t, c)
				m := locked(t, rs, redsync.WithExpiry(time.Hour))
				took := timed(func() {
					var taken *redsync.ErrTaken
					require.ErrorAs(t, rs.NewMutex(job, test.options...).Lock(), &taken)
				})
				require.InDelta(t, test.want.Seconds(), took.Seconds(), 0.001)
				_, err := m.Unlock()
				require.NoError(t, err)
			})
		})
	}
}

func TestTheDelayFunctionIsCalledForAMinuteInAdvance(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		locked(t, rs, redsync.WithExpiry(time.Hour))
		var mu sync.Mutex
		var calls []int
		next := rs.NewMutex(job, redsync.WithTries(150), redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, tries)
			return time.Second
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		go func() { _ = next.LockContext(ctx) }()
		for minute := 1; minute <= 2; minute++ {
			time.Sleep(time.Second)
			mu.Lock()
			require.Len(t, calls, 60*minute)
			require.Equal(t, 60*minute, calls[len(calls)-1])
			mu.Unlock()
			time.Sleep(time.Minute - time.Second/2)
		}
	})
}

func TestDelaysShorterThanATryDoNotCutItShort(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for i := range 3 {
			c.Node(i).SetReplyDelay(30 * time.Millisecond)
		}
		before := c.Node(0).Commands()
		require.NoError(t, rs.NewMutex(job, redsync.WithTries(3), redsync.WithRetryDelay(time.Millisecond)).Lock())
		require.Equal(t, before+1, c.Node(0).Commands())
	})
}

func TestTheLastTryIsMadeWhenTheDelaysAreOver(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for i := range 3 { // a holder who announces nothing
			c.Node(i).Set(job, "another's", time.Hour)
		}
		time.AfterFunc(time.Second-time.Millisecond, func() {
			for i := range 3 {
				c.Node(i).Delete(job)
			}
		})
		require.NoError(t, rs.NewMutex(job, redsync.WithTries(2), redsync.WithRetryDelay(time.Second)).Lock())
	})
}

func TestWaitingEndsWithTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		m := locked(t, rs)
		next := rs.NewMutex(job, redsync.WithRetryDelay(5*time.Second))
		got := make(chan error, 1)
		go func() { got <- next.Lock() }()
		time.Sleep(time.Second)
		took := timed(func() {
			_, err := m.Unlock()
			require.NoError(t, err)
			require.NoError(t, <-got)
		})
		require.Less(t, took, 50*time.Millisecond)
	})
}

func TestWithNothingToTryLockFails(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for _, tries := range []int{0, -1} {
			require.Equal(t, redsync.ErrFailed, rs.NewMutex(job, redsync.WithTries(tries)).Lock())
		}
		requireFree(t, c)
	})
}

func TestACancelledLockSaysSoAndLeavesNothing(t *testing.T) {
	cause := errors.New("the request is over")
	for name, hold := range map[string]bool{"held by others": true, "in mid-attempt": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
				rs := newRedsync(t, c)
				if hold {
					locked(t, rs)
				} else {
					for i := range 3 {
						c.Node(i).SetDelay(200 * time.Millisecond)
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
				took := timed(func() {
					err := rs.NewMutex(job).LockContext(ctx)
					require.ErrorIs(t, err, redsync.ErrFailed)
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, cause)
				})
				require.Equal(t, 100*time.Millisecond, took)
				time.Sleep(time.Second)
				if !hold {
					requireFree(t, c)
				}
			})
		})
	}
}

func TestANilContextStandsForNone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		m := newRedsync(t, c).NewMutex(job)
		var none context.Context
		require.NoError(t, m.LockContext(none))
		ok, err := m.ExtendContext(none)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = m.ValidContext(none)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = m.UnlockContext(none)
		require.NoError(t, err)
		require.True(t, ok)
	})
}

func TestExtendBeginsTheExpiryAnew(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		m := locked(t, newRedsync(t, c))
		until := m.Until()
		time.Sleep(5 * time.Second)
		ok, err := m.Extend()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, until.Add(5*time.Second), m.Until())
		for i := range 5 {
			_, ttl, _ := c.Node(i).Get(job)
			require.Equal(t, 8*time.Second, ttl)
		}
	})
}

func TestExtendSendsNothingOnceTheLockHasEnded(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		m := locked(t, newRedsync(t, c))
		time.Sleep(time.Until(m.Until()))
		require.NotEmpty(t, c.Holders(job), "the nodes still have it")
		synctest.Wait()
		before := c.Node(0).Commands()
		ok, err := m.Extend()
		require.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		require.ErrorIs(t, err, redlock.ErrLost)
		synctest.Wait()
		require.Equal(t, before, c.Node(0).Commands())
	})
}

func TestExtendOfALockThatAMajorityLostIsTaken(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		m := locked(t, newRedsync(t, c), redsync.WithSetNXOnExtend())
		for i := range 3 {
			c.Node(i).Delete(job)
		}
		ok, err := m.Extend()
		require.False(t, ok)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		require.Equal(t, []int{0, 1, 2}, taken.Nodes)
	})
}

func TestUnlockOfALockThatHasEndedSaysSo(t *testing.T) {
	for name, end := range map[string]func(c *redlocktest.Cluster, m *redsync.Mutex){
		"expired":  func(*redlocktest.Cluster, *redsync.Mutex) { time.Sleep(9 * time.Second) },
		"unlocked": func(_ *redlocktest.Cluster, m *redsync.Mutex) { _, _ = m.Unlock() },
		"deleted": func(c *redlocktest.Cluster, _ *redsync.Mutex) {
			for i := range 5 {
				c.Node(i).Delete(job)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
				m := locked(t, newRedsync(t, c))
				end(c, m)
				for range 2 {
					ok, err := m.Unlock()
					require.Equal(t, redsync.ErrLockAlreadyExpired, err)
					require.False(t, ok)
				}
			})
		})
	}
}

func TestUnlockOfALockThatTheNodesStillHaveIsNotTooLate(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, rs *redsync.Redsync, m *redsync.Mutex){
		"no longer valid": func(*testing.T, *redsync.Redsync, *redsync.Mutex) {},
		"extended by another mutex": func(t *testing.T, rs *redsync.Redsync, m *redsync.Mutex) {
			ok, err := rs.NewMutex(job, redsync.WithValue(m.Value()), redsync.WithExpiry(time.Minute)).Extend()
			require.NoError(t, err)
			require.True(t, ok)
			time.Sleep(10 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
				rs := newRedsync(t, c)
				m := locked(t, rs)
				wait(t, rs, m)
				time.Sleep(time.Until(m.Until()))
				ok, err := m.Valid()
				require.NoError(t, err)
				require.False(t, ok)
				ok, err = m.Unlock()
				require.NoError(t, err)
				require.True(t, ok)
				requireFree(t, c)
			})
		})
	}
}

func TestUnlockOfAMutexThatWasNeverLockedSendsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		before := c.Node(0).Commands()
		ok, err := rs.NewMutex(job).Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.False(t, ok)
		synctest.Wait()
		require.Equal(t, before, c.Node(0).Commands())
	})
}

func TestUnlockIsSentThoughTheContextHasEnded(t *testing.T) {
	for name, of := range map[string]func(rs *redsync.Redsync, m *redsync.Mutex) *redsync.Mutex{
		"the mutex that was locked": func(_ *redsync.Redsync, m *redsync.Mutex) *redsync.Mutex { return m },
		"another with its value": func(rs *redsync.Redsync, m *redsync.Mutex) *redsync.Mutex {
			return rs.NewMutex(job, redsync.WithValue(m.Value()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
				rs := newRedsync(t, c)
				m := of(rs, locked(t, rs))
				for i := range c.Len() { // or their answers may be there before anybody looks at the context
					c.Node(i).SetReplyDelay(time.Millisecond)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err := m.UnlockContext(ctx)
				require.ErrorIs(t, err, context.Canceled)
				requireFree(t, c)
			})
		})
	}
}

func TestUnlockMayBeCalledAgainWhenTooFewNodesAnswered(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		m := locked(t, newRedsync(t, c), redsync.WithExpiry(time.Minute))
		for i := range 3 {
			c.Node(i).SetError("READONLY You can't write against a read only replica.")
		}
		ok, err := m.Unlock()
		require.False(t, ok)
		var failed *redsync.RedisError
		require.ErrorAs(t, err, &failed)
		require.ErrorContains(t, err, "READONLY")
		for i := range 3 {
			c.Node(i).SetError("")
		}
		time.Sleep(5 * time.Second) // what was left has been seen to meanwhile
		requireFree(t, c)
		ok, err = m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.False(t, ok)
	})
}

func TestTheValueIsEnoughToExtendAndUnlock(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		m := locked(t, rs)
		other := newRedsync(t, c).NewMutex(job, redsync.WithValue(m.Value())) // as if in another process
		require.Equal(t, m.Value(), other.Value())

		ok, err := other.Valid()
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(5 * time.Second)
		ok, err = other.Extend()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 8*time.Second-82*time.Millisecond, time.Until(other.Until()))
		ok, err = rs.NewMutex(job, redsync.WithValue(m.Value())).Unlock()
		require.NoError(t, err)
		require.True(t, ok)
		requireFree(t, c)

		ok, err = other.Extend()
		require.False(t, ok)
		require.Error(t, err)
	})
}

func TestTheValueIsEnoughToUnlockWhatIsLeftOfALock(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(n *redlocktest.Node)
		want          func(t *testing.T, err error)
		left          map[string]int
	}{
		"deleted": {
			before: func(n *redlocktest.Node) { n.Delete(job) },
			want:   func(t *testing.T, err error) { require.Equal(t, redsync.ErrLockAlreadyExpired, err) },
		},
		"stolen": {
			before: func(n *redlocktest.Node) { n.Set(job, "another's", time.Hour) },
			want:   func(t *testing.T, err error) { require.Equal(t, redsync.ErrLockAlreadyExpired, err) },
			left:   map[string]int{"another's": 3},
		},
		"down": {
			before: (*redlocktest.Node).Hang,
			after:  (*redlocktest.Node).Resume,
			want: func(t *testing.T, err error) {
				var failed *redsync.RedisError
				require.ErrorAs(t, err, &failed)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
				rs := newRedsync(t, c)
				m := locked(t, rs, redsync.WithExpiry(time.Hour))
				for i := range 3 {
					test.before(c.Node(i))
				}
				ok, err := rs.NewMutex(job, redsync.WithValue(m.Value()), redsync.WithExpiry(time.Hour)).Unlock()
				require.False(t, ok)
				test.want(t, err)
				synctest.Wait()
				for i := 3; i < 5; i++ {
					_, _, held := c.Node(i).Get(job)
					require.False(t, held, "node %d", i)
				}
				if test.after != nil {
					for i := range 3 {
						test.after(c.Node(i))
					}
					time.Sleep(time.Minute)
				}
				left := c.Holders(job)
				require.Len(t, left, len(test.left))
				for value, nodes := range test.left {
					require.Equal(t, nodes, left[value])
				}
			})
		})
	}
}

func TestValidAsksTheNodesAndKnowsWhenTheLockHasEnded(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		ok, err := rs.NewMutex(job).Valid()
		require.False(t, ok)
		require.IsType(t, new(redsync.ErrTaken), err) //nolint:testifylint // by itself, and of a free lock, too, as in redsync

		m := locked(t, rs)
		ok, err = m.Valid()
		require.NoError(t, err)
		require.True(t, ok)

		c.Node(1).Delete(job)
		c.Node(2).Set(job, "another's", time.Hour)
		ok, err = m.Valid()
		require.True(t, ok)
		require.EqualError(t, err, "node #1: lock already taken\nnode #2: lock already taken")

		c.Node(3).Delete(job)
		ok, err = m.Valid()
		require.False(t, ok)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		require.Equal(t, []int{1, 2, 3}, taken.Nodes)

		time.Sleep(time.Until(m.Until()))
		ok, err = m.Valid()
		require.NoError(t, err)
		require.False(t, ok)
	})
}

func TestValidGoesByTheSettingsOfTheNodesAndNeedsNoConnectionOfItsOwn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		one := func(p *redigolib.Pool) { p.MaxActive = 1 }
		rs := newRedsyncOn(t, redigoPoolsWith(t, c, c.Dial, one, pool.WithTimeout(3*time.Second))...)
		m := locked(t, rs, redsync.WithExpiry(time.Minute))
		for i := range 3 {
			c.Node(i).SetReplyDelay(2 * time.Second)
		}
		took := timed(func() {
			ok, err := m.Valid()
			require.NoError(t, err)
			require.True(t, ok)
		})
		require.Equal(t, 2*time.Second, took)
		for i := range 3 {
			c.Node(i).Hang()
		}
		took = timed(func() {
			ok, err := m.Valid()
			require.ErrorIs(t, err, pool.ErrTimeout)
			require.False(t, ok)
		})
		require.Equal(t, 3*time.Second, took)
		for i := range 3 {
			c.Node(i).Resume()
		}
	})
}

func TestAHungMinorityHoldsNothingUp(t *testing.T) {
	for name, option := range map[string]redsync.Option{
		"fast": redsync.WithFailFast(true), "thorough": redsync.WithFailFast(false),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
				m := newRedsync(t, c).NewMutex(job, option)
				c.Node(1).Hang()
				c.Node(3).Hang()
				most := 25 * time.Millisecond
				if name == "fast" {
					most = 0
				}
				for what, do := range []func() (bool, error){
					func() (bool, error) { return true, m.Lock() }, m.Extend, m.Valid, m.Unlock,
				} {
					took := timed(func() {
						ok, err := do()
						require.NoError(t, err, "operation %d", what)
						require.True(t, ok, "operation %d", what)
					})
					require.LessOrEqual(t, took, most, "operation %d", what)
				}
				c.Node(1).Resume()
				c.Node(3).Resume()
				time.Sleep(5 * time.Second)
				requireFree(t, c)
			})
		})
	}
}

func TestWhatNodesSayIsInTheError(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		locked(t, rs)
		c.Node(2).SetError("READONLY You can't write against a read only replica.")

		err := rs.NewMutex(job).TryLock()
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		require.Equal(t, []int{0, 1, 3, 4}, taken.Nodes)
		var failed *redsync.RedisError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 2, failed.Node)
		require.ErrorContains(t, err, "node #2: READONLY")
	})
}

func TestWithoutAQuorumOfAnswersItIsNotTaken(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		for i := range 3 {
			c.Node(i).Stop()
		}
		c.Node(3).Set(job, "another's", time.Hour)
		err := rs.NewMutex(job).TryLock()
		var taken *redsync.ErrTaken
		require.NotErrorAs(t, err, &taken)
		var refused *redsync.ErrNodeTaken
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 3, refused.Node)
		var failed *redsync.RedisError
		require.ErrorAs(t, err, &failed)
		requireFreeBut(t, c, "another's")
	})
}

func requireFreeBut(t *testing.T, c *redlocktest.Cluster, value string) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, map[string]int{value: 1}, c.Holders(job))
}

func TestTwoMutexesWithOneConstantValueExcludeEachOther(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		pod := redsync.WithGenValueFunc(func() (string, error) { return "pod-1", nil })
		first := newRedsync(t, c).NewMutex(job, pod)
		second := newRedsync(t, c).NewMutex(job, pod)
		require.NoError(t, first.TryLock())
		require.Error(t, second.TryLock())
		ok, err := first.Extend() // what the second did has undone nothing
		require.NoError(t, err)
		require.True(t, ok)
	})
}
