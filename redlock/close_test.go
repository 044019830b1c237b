package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestEveryMethodAfterCloseReturnsErrClosed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, "held")
		require.NoError(t, l.Close())
		before := commands(c)
		for name, call := range map[string]func() error{
			"Acquire":       func() error { _, err := l.Acquire(t.Context(), job); return err },
			"TryAcquire":    func() error { _, err := l.TryAcquire(t.Context(), job); return err },
			"AcquireAll":    func() error { _, err := l.AcquireAll(t.Context(), []string{job}); return err },
			"TryAcquireAll": func() error { _, err := l.TryAcquireAll(t.Context(), []string{job}); return err },
			"Do": func() error {
				return l.Do(t.Context(), job, func(context.Context, *redlock.Lock) error { panic("called") })
			},
			"Renew":   func() error { return k.Renew(t.Context()) },
			"Release": func() error { return k.Release(t.Context()) },
		} {
			err := call()
			requireOutcome(t, err, redlock.ErrClosed)
			requireShape(t, err)
			t.Log(name, err)
		}
		require.Equal(t, before, commands(c))
	})
}

func TestCloseIsIdempotentAndMayBeCalledByMany(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				for i := range 3 {
					if n := c.Node(i).Connections(); n > 0 {
						// The node may not have noticed yet.
						time.Sleep(time.Millisecond)
						if n := c.Node(i).Connections(); n > 0 {
							t.Errorf("Close has returned with %d connections open", n)
						}
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, l.Close())
	})
}

// Time goes on in a bubble while several wait for one Close.
func TestCloseThatTakesAWhileMayBeCalledByMany(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		each(c, upTo(3), (*redlocktest.Node).Hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Error(t, k.Release(ctx)) // which Close will wait for
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { require.NoError(t, l.Close()) })
		}
		require.Positive(t, took(wg.Wait))
		each(c, upTo(3), (*redlocktest.Node).Resume)
	})
}

func TestCloseOfALockerThatWasNeverUsed(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		l := coldLocker(t, newCluster(t, 3))
		require.Zero(t, took(func() { require.NoError(t, l.Close()) }))
	})
}

func TestCloseEndsTheWaiting(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		holder, l := newLocker(t, c), newLocker(t, c)
		acquired(t, holder, job, redlock.WithTTL(time.Hour))
		const waiters = 10
		results := make(chan error, waiters)
		for range waiters {
			go func() {
				_, err := l.Acquire(t.Context(), job)
				results <- err
			}()
		}
		time.Sleep(time.Minute)
		elapsed := took(func() { require.NoError(t, l.Close()) })
		require.LessOrEqual(t, elapsed, redlock.DefaultNodeTimeout)
		for range waiters {
			err := <-results
			requireOutcome(t, err, redlock.ErrClosed)
			requireShape(t, err)
		}
	})
}

func TestCloseEndsAnAttemptAndUndoesIt(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetReplyDelay(100 * time.Millisecond) })
		result := make(chan error, 1)
		go func() {
			_, err := l.TryAcquire(t.Context(), job)
			result <- err
		}()
		time.Sleep(10 * time.Millisecond)
		elapsed := took(func() { require.NoError(t, l.Close()) })
		requireOutcome(t, <-result, redlock.ErrClosed)
		require.LessOrEqual(t, elapsed, 2*redlock.DefaultNodeTimeout)
		requireFree(t, c, job)
	})
}

func TestCloseEndsARenewalThatIsWaitedFor(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		each(c, upTo(3), (*redlocktest.Node).Hang)
		result := make(chan error, 1)
		go func() { result <- k.Renew(t.Context()) }()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, l.Close())
		requireOutcome(t, <-result, redlock.ErrClosed)
	})
}

func TestCloseLetsAReleaseFinish(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job)
		synctest.Wait()
		each(c, upTo(3), func(n *redlocktest.Node) { n.SetDelay(100 * time.Millisecond) })
		result := make(chan error, 1)
		go func() { result <- k.Release(t.Context()) }()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, l.Close())
		require.NoError(t, <-result)
		requireFree(t, c, job)
	})
}

// A release returns when a quorum has answered. A program that then closes and
// exits must not leave the keys on the nodes that were slower.
func TestCloseWaitsForTheRestOfARelease(t *testing.T) {
	for name, slow := range map[string]func(t *testing.T, c *redlocktest.Cluster, tap *wiretap){
		"a slow way to the node": func(_ *testing.T, c *redlocktest.Cluster, _ *wiretap) {
			c.Node(4).SetDelay(100 * time.Millisecond)
		},
		"a connection that is being made": func(_ *testing.T, c *redlocktest.Cluster, tap *wiretap) {
			tap.onDial(func(string) error { time.Sleep(100 * time.Millisecond); return nil })
			c.Node(4).DropConnections()
			synctest.Wait()
		},
		"a connection that breaks": func(_ *testing.T, c *redlocktest.Cluster, _ *wiretap) {
			c.Node(4).SetDelay(100 * time.Millisecond)
			time.AfterFunc(50*time.Millisecond, func() {
				c.Node(4).SetDelay(0)
				c.Node(4).DropConnections()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 5)
				tap := newWiretap(c)
				l := newLocker(t, c, redlock.WithDialer(tap.Dial))
				k := acquired(t, l, job)
				requireHolders(t, c, k, 5)
				slow(t, c, tap)
				require.Zero(t, took(func() { require.NoError(t, k.Release(t.Context())) }))
				elapsed := took(func() { require.NoError(t, l.Close()) })
				require.LessOrEqual(t, elapsed, 2*redlock.DefaultNodeTimeout)
				requireFree(t, c, job)
			})
		})
	}
}

func TestCloseIsBoundedThoughNothingCanBeUndone(t *testing.T) {
	for name, strike := range map[string]func(*redlocktest.Node){
		"hung": (*redlocktest.Node).Hang, "stopped": (*redlocktest.Node).Stop,
		"mute": func(n *redlocktest.Node) { n.DropReplies(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				k := acquired(t, l, "held")
				synctest.Wait()
				each(c, upTo(3), strike)
				_, err := l.TryAcquire(t.Context(), job)
				require.Error(t, err)
				require.Error(t, k.Release(t.Context()))
				elapsed := took(func() { require.NoError(t, l.Close()) })
				require.LessOrEqual(t, elapsed, 2*redlock.DefaultNodeTimeout)
			})
		})
	}
}

// Close does not release what is held, nor end it.
func TestALockSurvivesCloseUntilItsDeadline(t *testing.T) {
	synctest.Test(parallel(t), func(t *testing.T) {
		c := newCluster(t, 3)
		l := newLocker(t, c)
		k := acquired(t, l, job, redlock.WithAutoRenew(true))
		done := k.Done()
		synctest.Wait()
		require.NoError(t, l.Close())
		before := commands(c)
		require.NoError(t, k.Err())
		requireHolders(t, c, k, 3)
		require.Equal(t, 9898*time.Millisecond, took(func() { <-done }))
		requireOutcome(t, k.Err(), redlock.ErrLost)
		require.Equal(t, before, commands(c), "it is not renewed any more")
	})
}

// Everything at once, and nothing may hang or stay behind.
func TestCloseInTheMiddleOfEverything(t *testing.T) {
	for range 20 {
		t.Run("", func(t *testing.T) {
			synctest.Test(parallel(t), func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLocker(t, c)
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						for {
							k, err := l.Acquire(t.Context(), []string{"a", "b"}[i%2], redlock.WithAutoRenew(i%3 == 0))
							if err != nil {
								requireOutcome(t, err, redlock.ErrClosed)
								return
							}
							time.Sleep(3 * time.Millisecond)
							_ = k.Renew(t.Context())
							_ = k.Release(t.Context()) // ErrClosed or nil
						}
					})
				}
				each(c, upTo(3), func(n *redlocktest.Node) { n.SetDelay(time.Millisecond) })
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, l.Close())
				wg.Wait()
			})
		})
	}
}
