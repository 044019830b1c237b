package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// requireEnded checks that err says that the context ended, and why.
func requireEnded(t *testing.T, err error, ctx context.Context) { //nolint:revive // t comes first in a helper
	t.Helper()
	requireShape(t, err)
	require.ErrorIs(t, err, ctx.Err())
	require.ErrorIs(t, err, context.Cause(ctx))
	require.Contains(t, err.Error(), context.Cause(ctx).Error())
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	methods := map[string]func(ctx context.Context, l *redlock.Locker, k *redlock.Lock) error{
		"Acquire": func(ctx context.Context, l *redlock.Locker, _ *redlock.Lock) error {
			_, err := l.Acquire(ctx, job)
			return err
		},
		"TryAcquire": func(ctx context.Context, l *redlock.Locker, _ *redlock.Lock) error {
			_, err := l.TryAcquire(ctx, job)
			return err
		},
		"AcquireAll": func(ctx context.Context, l *redlock.Locker, _ *redlock.Lock) error {
			_, err := l.AcquireAll(ctx, []string{job, "b"})
			return err
		},
		"TryAcquireAll": func(ctx context.Context, l *redlock.Locker, _ *redlock.Lock) error {
			_, err := l.TryAcquireAll(ctx, []string{job, "b"})
			return err
		},
		"Do": func(ctx context.Context, l *redlock.Locker, _ *redlock.Lock) error {
			return l.Do(ctx, job, func(context.Context, *redlock.Lock) error { panic("called") })
		},
		"Renew": func(ctx context.Context, _ *redlock.Locker, k *redlock.Lock) error { return k.Renew(ctx) },
	}
	for method, call := range methods {
		for kind, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			},
			"past its deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, -1)
			},
			"cancelled with a cause": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				cancel(errTest)
				return ctx, func() {}
			},
		} {
			t.Run(method+" "+kind, func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 3)
					l := newLocker(t, c)
					k := acquired(t, l, "held")
					before := commands(c)
					ctx, cancel := end(t.Context())
					defer cancel()
					err := call(ctx, l, k)
					requireEnded(t, err, ctx)
					requireOutcome(t, err, nil)
					_ = requireQuorumError(t, err)
					time.Sleep(time.Second)
					require.Equal(t, before, commands(c))
				})
			})
		}
	}
}

func TestACancelledAttemptReturnsAtOnceAndIsUndone(t *testing.T) {
	const delay, patience = 100 * time.Millisecond, 40 * time.Millisecond
	for kind, limit := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(patience, cancel)
			return ctx, cancel
		},
		"cause": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(patience, func() { cancel(errTest) })
			return ctx, func() { cancel(nil) }
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, patience)
		},
		"deadline with a cause": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, patience, errTest)
		},
	} {
		for side, slow := range map[string]func(*redlocktest.Node){
			"before the nodes have it": func(n *redlocktest.Node) { n.SetDelay(delay) },
			"with the answers out":     func(n *redlocktest.Node) { n.SetReplyDelay(delay) },
		} {
			for _, wait := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, waiting %v", kind, side, wait), func(t *testing.T) {
					synctest.Test(parallel(t), func(t *testing.T) {
						c := newCluster(t, 5)
						l := newLocker(t, c)
						each(c, upTo(5), slow)
						ctx, cancel := limit(t.Context())
						defer cancel()
						var err error
						elapsed := took(func() {
							if wait {
								_, err = l.Acquire(ctx, job)
							} else {
								_, err = l.TryAcquire(ctx, job)
							}
						})
						require.Equal(t, patience, elapsed)
						requireEnded(t, err, ctx)
						requireOutcome(t, err, nil)
						require.Len(t, requireQuorumError(t, err).Nodes, 5)
						time.Sleep(2 * delay)
						requireFree(t, c, job)
					})
				})
			}
		}
	}
}

func TestAContextThatEndsWhileOthersHoldTheLockSaysBoth(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		acquired(t, newLocker(t, c), job, redlock.WithTTL(time.Hour))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errTest)
		defer cancel()
		elapsed := took(func() {
			_, err := l.Acquire(ctx, job)
			requireEnded(t, err, ctx)
			requireOutcome(t, err, redlock.ErrTaken)
			require.NotErrorIs(t, err, redlock.ErrNoQuorum)
		})
		require.Equal(t, 5*time.Second, elapsed)
	})
}

func TestAContextThatEndsDuringAnOutageSaysBoth(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(2), (*redlocktest.Node).Stop)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		elapsed := took(func() {
			_, err := l.Acquire(ctx, job)
			requireEnded(t, err, ctx)
			requireOutcome(t, err, redlock.ErrNoQuorum)
			require.Contains(t, err.Error(), c.Node(0).Addr(), "and why")
		})
		require.Equal(t, 2*time.Second, elapsed)
		time.Sleep(redlock.DefaultTTL)
		requireFree(t, c, job)
	})
}

// A cause that is, or wraps, the context's own error is not shown twice.
func TestACauseThatWrapsTheContextsErrorIsShownOnce(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 1))
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := fmt.Errorf("shutting down: %w", context.Canceled)
		cancel(cause)
		_, err := l.TryAcquire(ctx, job)
		require.EqualError(t, err, `redlock: acquire "job": shutting down: context canceled`)
		require.ErrorIs(t, err, cause)
	})
}

// The caller may end their context in the very moment in which the deciding
// vote arrives. They get either a lock or an error with nothing left behind,
// never both.
func TestATieOfCancellationAndSuccessLeavesNoKey(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetReplyDelay(10 * time.Millisecond) })
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			k, err := l.TryAcquire(ctx, job)
			if err == nil {
				require.NoError(t, k.Release(t.Context()))
			} else {
				requireEnded(t, err, ctx)
			}
			time.Sleep(50 * time.Millisecond)
			requireFree(t, c, job)
			cancel()
		}
	})
}

func TestAnEndedContextStillReleases(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		synctest.Wait()
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(30 * time.Millisecond) })
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errTest)
		elapsed := took(func() {
			err := k.Release(ctx)
			requireEnded(t, err, ctx)
			requireOutcome(t, err, nil)
			require.Equal(t, "release", requireQuorumError(t, err).Op)
		})
		require.Zero(t, elapsed, "the context bounds the waiting")
		requireOutcome(t, k.Err(), redlock.ErrReleased)
		time.Sleep(30 * time.Millisecond)
		requireFree(t, c, job)
		require.NoError(t, k.Release(ctx), "what came of it can be asked later")
	})
}

func TestAContextThatEndsDoesNotEndTheRenewal(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 5)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		time.Sleep(5 * time.Second)
		each(c, upTo(5), func(n *redlocktest.Node) { n.SetDelay(100 * time.Millisecond) })
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, errTest)
		defer cancel()
		elapsed := took(func() {
			err := k.Renew(ctx)
			requireEnded(t, err, ctx)
			requireOutcome(t, err, nil)
			require.Equal(t, "renew", requireQuorumError(t, err).Op)
		})
		require.Equal(t, 30*time.Millisecond, elapsed)
		time.Sleep(70 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 9898*time.Millisecond-100*time.Millisecond, k.Validity())
	})
}

func TestDoneIsClosedAtTheDeadline(t *testing.T) {
	for name, prepare := range map[string]func(*redlocktest.Cluster){
		"with nothing wrong": func(*redlocktest.Cluster) {},
		"with all nodes hung": func(c *redlocktest.Cluster) {
			each(c, upTo(5), (*redlocktest.Node).Hang)
		},
		"with all nodes down": func(c *redlocktest.Cluster) {
			each(c, upTo(5), (*redlocktest.Node).Stop)
		},
	} {
		for _, renew := range []bool{false, true} {
			if renew && name == "with nothing wrong" {
				continue
			}
			t.Run(fmt.Sprintf("%s, renewing %v", name, renew), func(t *testing.T) {
				synctest.Test(parallel(t), func(t *testing.T) {
					c := newCluster(t, 5)
					l := newLocker(t, c)
					k := acquired(t, l, job, redlock.WithAutoRenew(renew))
					synctest.Wait()
					prepare(c)
					ctx, cancel := k.Context(t.Context())
					defer cancel()
					require.False(t, isDone(k.Done()))
					elapsed := took(func() { <-k.Done() })
					require.Equal(t, 10*time.Second-102*time.Millisecond, elapsed)
					synctest.Wait()
					require.ErrorIs(t, ctx.Err(), context.Canceled)
					requireOutcome(t, context.Cause(ctx), redlock.ErrLost)
					require.Equal(t, k.Err(), context.Cause(ctx))
					requireOutcome(t, k.Err(), redlock.ErrLost)
					require.ErrorContains(t, k.Err(), `redlock: lock "job" lost: expired`)
					require.Zero(t, k.Validity())
				})
			})
		}
	}
}

func TestDoneOfAnEndedLockIsClosed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		released, lost := acquired(t, l, "released"), acquired(t, l, "lost")
		require.NoError(t, released.Release(t.Context()))
		require.True(t, isDone(released.Done()))
		time.Sleep(redlock.DefaultTTL)
		require.True(t, isDone(lost.Done()), "though nobody has asked before")
	})
}

func TestDoneMovesWithTheRenewals(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		k := acquired(t, l, job)
		done := k.Done()
		for range 10 {
			time.Sleep(9 * time.Second)
			require.False(t, isDone(done))
			require.NoError(t, k.Renew(t.Context()))
		}
		require.Equal(t, 9898*time.Millisecond, took(func() { <-done }))
	})
}

func TestTheLocksContextEndsWithTheRelease(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		ctx, cancel := k.Context(t.Context())
		defer cancel()
		require.NoError(t, ctx.Err())
		require.NoError(t, k.Release(t.Context()))
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		requireOutcome(t, context.Cause(ctx), redlock.ErrReleased)

		late, cancel := k.Context(t.Context())
		defer cancel()
		require.Error(t, late.Err(), "so does one that is made afterwards")
		requireOutcome(t, context.Cause(late), redlock.ErrReleased)
	})
}

func TestTheLocksContextOfALostLockHasEnded(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		k := acquired(t, l, job)
		early, cancel := k.Context(t.Context())
		defer cancel()
		time.Sleep(redlock.DefaultTTL)
		synctest.Wait()
		late, cancel := k.Context(t.Context())
		defer cancel()
		for _, ctx := range []context.Context{early, late} {
			require.Error(t, ctx.Err())
			requireOutcome(t, context.Cause(ctx), redlock.ErrLost)
		}
	})
}

func TestTheLocksContextFollowsItsParent(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		k := acquired(t, l, job)
		type key struct{}
		parent, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		ctx, cancel := k.Context(parent)
		defer cancel()
		require.Equal(t, "value", ctx.Value(key{}))
		end(errTest)
		require.ErrorIs(t, context.Cause(ctx), errTest)
		require.NoError(t, k.Err(), "and the lock does not")
		require.NoError(t, k.Release(t.Context()))
		require.ErrorIs(t, context.Cause(ctx), errTest, "the first cause stays")
	})
}

func TestTheLocksContextCanBeCancelledByItself(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		k := acquired(t, l, job)
		ctx, cancel := k.Context(t.Context())
		other, cancelOther := k.Context(t.Context())
		defer cancelOther()
		cancel()
		cancel()
		require.Equal(t, context.Canceled, context.Cause(ctx))
		require.NoError(t, other.Err())
		require.NoError(t, k.Err())
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, context.Canceled, context.Cause(ctx), "the lock does not know it any more")
		requireOutcome(t, context.Cause(other), redlock.ErrReleased)
	})
}

// What hears of the end may ask the lock about it, without a deadlock.
func TestTheLockMayBeUsedByThoseWhoHearOfItsEnd(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		for _, end := range []func(*redlock.Lock){
			func(k *redlock.Lock) { require.NoError(t, k.Release(t.Context())) },
			func(*redlock.Lock) { time.Sleep(redlock.DefaultTTL) },
			func(k *redlock.Lock) {
				each(c, upTo(3), func(n *redlocktest.Node) { n.Delete(job) })
				require.Error(t, k.Renew(t.Context()))
			},
		} {
			k := acquired(t, l, job)
			ctx, cancel := k.Context(t.Context())
			heard := make(chan error, 1)
			stop := context.AfterFunc(ctx, func() {
				if k.Validity() != 0 || !isDone(k.Done()) {
					heard <- errors.New("the lock does not know that it has ended")
				}
				heard <- k.Err()
			})
			end(k)
			synctest.Wait()
			require.Equal(t, k.Err(), <-heard)
			require.Error(t, k.Err())
			stop()
			cancel()
			time.Sleep(redlock.DefaultTTL)
		}
	})
}
