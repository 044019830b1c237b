package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestDoHoldsTheLockWhileTheFunctionRuns(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		var kept *redlock.Lock
		var guarded context.Context
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		err := l.Do(ctx, job, func(ctx context.Context, k *redlock.Lock) error {
			kept, guarded = k, ctx
			requireHolders(t, c, k, 3)
			require.NoError(t, ctx.Err())
			require.Equal(t, "value", ctx.Value(key{}))
			require.Equal(t, job, k.Name())
			time.Sleep(10 * time.Minute) // it is renewed
			require.NoError(t, ctx.Err())
			require.Positive(t, k.Validity())
			return nil
		})
		require.NoError(t, err)
		requireFree(t, c, job)
		require.Error(t, guarded.Err())
		requireOutcome(t, context.Cause(guarded), redlock.ErrReleased)
		requireOutcome(t, kept.Err(), redlock.ErrReleased)
		before := commands(c)
		time.Sleep(time.Hour)
		require.Equal(t, before, commands(c))
	})
}

func TestDoReturnsTheFunctionsErrorAsItIs(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		err := l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error { return errTest })
		require.Equal(t, errTest, err)
		requireFree(t, c, job)
	})
}

func TestDoReleasesWhenTheFunctionPanics(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		value := &struct{ int }{7}
		var stack string
		func() {
			defer func() {
				require.Same(t, value, recover(), "the very value")
				stack = string(debug.Stack())
			}()
			_ = l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error { explode(value); return nil })
		}()
		require.Contains(t, stack, "redlock_test.explode", "the stack is that of the panic")
		requireFree(t, c, job)
	})
}

//go:noinline
func explode(value any) { panic(value) }

func TestDoReleasesWhenTheFunctionEndsItsGoroutine(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error {
				runtime.Goexit()
				return nil
			})
			t.Error("Do has returned")
		}()
		<-ended
		requireFree(t, c, job)
	})
}

func TestDoTellsThatTheLockWasLost(t *testing.T) {
	for _, own := range []error{nil, errTest} {
		t.Run(fmt.Sprint(own), func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				err := l.Do(t.Context(), job, func(ctx context.Context, k *redlock.Lock) error {
					synctest.Wait()
					each(c, upTo(3), func(n *redlocktest.Node) { n.Set(job, "thief", time.Hour) })
					<-ctx.Done()
					requireOutcome(t, context.Cause(ctx), redlock.ErrLost)
					requireOutcome(t, k.Err(), redlock.ErrLost)
					return own
				})
				requireOutcome(t, err, redlock.ErrLost)
				if own != nil {
					require.ErrorIs(t, err, own)
				}
				require.Equal(t, 3, c.Holders(job)["thief"])
			})
		})
	}
}

func TestDoTellsThatTheLockHadBeenLostAtTheRelease(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		err := l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error {
			synctest.Wait()
			each(c, upTo(3), func(n *redlocktest.Node) { n.Delete(job) })
			return nil // before a renewal could find out
		})
		requireOutcome(t, err, redlock.ErrLost)
	})
}

func TestDoWithoutRenewalLosesTheLockAtItsDeadline(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		err := l.Do(t.Context(), job, func(ctx context.Context, _ *redlock.Lock) error {
			require.Equal(t, 9898*time.Millisecond, took(func() { <-ctx.Done() }))
			return nil
		}, redlock.WithAutoRenew(false))
		requireOutcome(t, err, redlock.ErrLost)
	})
}

func TestDoMayBeToldNotToHoldForever(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3), redlock.WithMaxHold(time.Minute))
		err := l.Do(t.Context(), job, func(ctx context.Context, _ *redlock.Lock) error {
			require.Equal(t, time.Minute, took(func() { <-ctx.Done() }))
			return nil
		})
		requireOutcome(t, err, redlock.ErrLost)
	})
}

// That a release could not be confirmed is no error of the function's.
func TestDoDoesNotMaskSuccessWithAnOutage(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		require.NoError(t, l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error {
			synctest.Wait()
			each(c, upTo(3), (*redlocktest.Node).Hang)
			return nil
		}))
		each(c, upTo(3), (*redlocktest.Node).Resume)
		time.Sleep(5 * time.Second)
		requireFree(t, c, job)
	})
}

func TestDoReleasesThoughItsContextHasEnded(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		ctx, cancel := context.WithCancelCause(t.Context())
		err := l.Do(ctx, job, func(ctx context.Context, _ *redlock.Lock) error {
			cancel(errTest)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), errTest)
			return ctx.Err()
		})
		require.Equal(t, context.Canceled, err)
		requireFree(t, c, job)
	})
}

func TestDoDoesNotCallTheFunctionWithoutTheLock(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		foreign(c, upTo(3)...)
		err := l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error {
			t.Error("called")
			return nil
		}, redlock.WithMaxAttempts(1))
		requireOutcome(t, err, redlock.ErrTaken)
		_ = requireQuorumError(t, err)
	})
}

func TestTheFunctionMayReleaseByItself(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		require.NoError(t, l.Do(t.Context(), job, func(ctx context.Context, k *redlock.Lock) error {
			require.NoError(t, k.Release(context.WithoutCancel(ctx)))
			requireFree(t, c, job)
			require.Error(t, ctx.Err())
			return nil
		}))
	})
}

func TestDoesOnOneNameRunOneAfterAnother(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		const callers = 20
		results := make(chan error, callers)
		inside := 0 // the lock guards it, and the race detector knows
		l := newLocker(t, c)
		for i := range callers {
			if i%4 == 0 {
				l = newLocker(t, c)
			}
			go func(l *redlock.Locker) {
				results <- l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error {
					inside++
					if inside != 1 {
						t.Errorf("%d inside", inside)
					}
					time.Sleep(10 * time.Millisecond)
					inside--
					return nil
				})
			}(l)
		}
		for range callers {
			require.NoError(t, <-results)
		}
	})
}

func TestDoTellsALossThatComesAfterClose(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := newLocker(t, newCluster(t, 3))
		err := l.Do(t.Context(), job, func(ctx context.Context, _ *redlock.Lock) error {
			require.NoError(t, l.Close())
			<-ctx.Done()
			requireOutcome(t, context.Cause(ctx), redlock.ErrLost)
			return nil
		})
		requireOutcome(t, err, redlock.ErrLost)
	})
}

// Others may get the lock before the minimum is over, and run the job again.
func TestDoTellsAMinimumHoldThatIsNotKept(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		down := func(context.Context, *redlock.Lock) error {
			each(c, []int{0, 1}, (*redlocktest.Node).Stop)
			return nil
		}
		requireOutcome(t, l.Do(t.Context(), job, down, redlock.WithMinHold(time.Minute)), redlock.ErrNoQuorum)
	})
}
