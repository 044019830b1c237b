package redsync_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/compat/redsync"
	"github.com/redquorum/go-redlock/compat/redsync/redis"
	"github.com/redquorum/go-redlock/compat/redsync/redis/redigo"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestAnEvenNumberOfNodesIsTaken(t *testing.T) {
	bubble(t, 4, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		c.Node(0).Stop()
		m := rs.NewMutex(job)
		require.NoError(t, m.Lock(), "three of four are a quorum")
		for _, fast := range []bool{true, false} {
			err := rs.NewMutex(job, redsync.WithFailFast(fast)).TryLock()
			var taken *redsync.ErrTaken
			require.ErrorAs(t, err, &taken)
		}
		c.Node(1).Stop()
		require.Error(t, rs.NewMutex("another").TryLock(), "two of four are none")
	})
}

func TestANodeThatIsNoNodeIsReportedByEveryOperation(t *testing.T) {
	p := redigo.NewPool(&redigolib.Pool{Dial: func() (redigolib.Conn, error) { return nil, errors.New("never dialled") }})
	for name, pools := range map[string][]redis.Pool{
		"no nodes":           {},
		"no pool":            {p, nil, p},
		"no redigo pool":     {redigo.NewPool(nil)},
		"the same twice":     {p, p, p},
		"options that clash": {redigo.NewPool(&redigolib.Pool{}, pool.WithTimeout(-1))},
	} {
		t.Run(name, func(t *testing.T) {
			rs := redsync.New(pools...)
			m := rs.NewMutex(job, redsync.WithValue("some"))
			err := m.Lock()
			require.Error(t, err)
			_, unlock := m.Unlock()
			_, extend := m.Extend()
			_, valid := m.Valid()
			for _, other := range []error{m.TryLock(), unlock, extend, valid} {
				require.ErrorIs(t, other, err)
			}
			require.NoError(t, rs.Close())
		})
	}
}

func TestWithoutNewThereAreNoNodesAndEveryOperationFails(t *testing.T) {
	for name, m := range map[string]*redsync.Mutex{
		"mutex of a zero Redsync": new(redsync.Redsync).NewMutex(job, redsync.WithValue("some")),
		"zero mutex":              new(redsync.Mutex),
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, redsync.ErrFailed, m.Lock())
			for _, do := range []func() (bool, error){m.Extend, m.Valid, m.Unlock} {
				ok, err := do()
				require.ErrorIs(t, err, redsync.ErrFailed)
				require.False(t, ok)
			}
		})
	}
	require.NoError(t, new(redsync.Redsync).Close())
}

func TestAfterCloseEverythingFails(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		rs := newRedsync(t, c)
		m := locked(t, rs)
		waiting := make(chan error, 1)
		go func() { waiting <- rs.NewMutex(job).Lock() }()
		synctest.Wait()
		require.NoError(t, rs.Close())
		require.ErrorIs(t, <-waiting, redlock.ErrClosed)
		require.ErrorIs(t, m.Lock(), redlock.ErrClosed)
		_, err := m.Extend()
		require.ErrorIs(t, err, redlock.ErrClosed)
		_, err = m.Unlock()
		require.ErrorIs(t, err, redlock.ErrClosed)
		_, err = m.Valid()
		require.ErrorIs(t, err, redlock.ErrClosed)
		require.Equal(t, map[string]int{m.Value(): 3}, c.Holders(job), "locks that are held stay held")
	})
}

// delegate is a pool of redigo connections that is no redigo.Pool.
type delegate struct {
	*redigolib.Pool
	mu    sync.Mutex
	taken int
}

func (d *delegate) GetContext(ctx context.Context) (redigolib.Conn, error) {
	d.mu.Lock()
	d.taken++
	d.mu.Unlock()
	return d.Pool.GetContext(ctx)
}

func TestAPoolOfAnotherKindWillDo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		var pools []redis.Pool
		var delegates []*delegate
		for _, addr := range c.Addrs() {
			d := &delegate{Pool: &redigolib.Pool{MaxIdle: 1, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
				return redigolib.DialContext(ctx, "tcp", addr, redigolib.DialContextFunc(c.Dial))
			}}}
			t.Cleanup(func() { _ = d.Close() })
			delegates = append(delegates, d)
			pools = append(pools, redigo.NewPool(d))
		}
		rs := newRedsyncOn(t, pools...)
		m := locked(t, rs)
		ok, err := m.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
		for _, d := range delegates {
			require.Positive(t, d.taken)
			require.Equal(t, 1, d.ActiveCount())
		}
		time.Sleep(time.Minute) // connections without use go back
		for _, d := range delegates {
			require.Equal(t, 1, d.IdleCount())
		}
	})
}

// plain hides what a connection of redigo can do beyond a redis.Conn.
type plain struct{ redigolib.Conn }

func TestAConnectionThatKnowsNoTimeoutsIsSaidToBeTheReason(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		hide := func(p *redigolib.Pool) {
			dial := p.DialContext
			p.DialContext = func(ctx context.Context) (redigolib.Conn, error) {
				conn, err := dial(ctx)
				return plain{conn}, err
			}
		}
		rs := newRedsyncOn(t, redigoPoolsWith(t, c, c.Dial, hide)...)
		require.ErrorContains(t, rs.NewMutex(job).TryLock(), "connection does not support ConnWithTimeout")
	})
}

func TestOneMutexMayBeUsedByManyGoroutines(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *redlocktest.Cluster) {
		m := newRedsync(t, c).NewMutex(job, redsync.WithTries(1000))
		var wg sync.WaitGroup
		inside := 0
		for i := range 10 {
			wg.Go(func() {
				for range 5 {
					if err := m.Lock(); err != nil {
						t.Errorf("goroutine %d: %v", i, err)
						return
					}
					inside++ // which the race detector watches
					if inside != 1 {
						t.Errorf("%d inside", inside)
					}
					if ok, err := m.Extend(); !ok || err != nil {
						t.Errorf("goroutine %d: extend: %v, %v", i, ok, err)
					}
					inside--
					if ok, err := m.Unlock(); !ok || err != nil {
						t.Errorf("goroutine %d: unlock: %v, %v", i, ok, err)
					}
				}
			})
			wg.Go(func() { // whoever only looks
				for range 5 {
					_, _ = m.Valid()
					_, _ = m.Value(), m.Until()
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		requireFree(t, c)
	})
}

func TestContendersInOneProcessExcludeEachOther(t *testing.T) {
	bubble(t, 5, func(t *testing.T, c *redlocktest.Cluster) {
		rs := []*redsync.Redsync{newRedsync(t, c), newRedsync(t, c)}
		var wg sync.WaitGroup
		inside, count := 0, 0
		for i := range 20 {
			wg.Go(func() {
				m := rs[i%2].NewMutex(job, redsync.WithTries(1000))
				for range 5 {
					if err := m.Lock(); err != nil {
						t.Errorf("contender %d: %v", i, err)
						return
					}
					inside++ // which the race detector watches
					if inside != 1 {
						t.Errorf("%d inside", inside)
					}
					time.Sleep(time.Millisecond)
					count++
					inside--
					if ok, err := m.Unlock(); !ok || err != nil {
						t.Errorf("contender %d: unlock: %v, %v", i, ok, err)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, 100, count)
		requireFree(t, c)
	})
}

// Not in a bubble: what the garbage collector starts belongs to none.
func TestARedsyncThatIsForgottenClosesItself(t *testing.T) {
	c := redlocktest.Start(t, 1)
	p := &redigolib.Pool{Dial: func() (redigolib.Conn, error) { return redigolib.Dial("tcp", c.Addrs()[0]) }}
	t.Cleanup(func() { _ = p.Close() })
	before := goleak.IgnoreCurrent()
	func() {
		m := redsync.New(redigo.NewPool(p)).NewMutex(job)
		require.NoError(t, m.Lock())
		c.Node(0).Stop()
		require.Error(t, m.TryLock()) // from now on somebody looks for the node's return
		require.Error(t, goleak.Find(before))
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return goleak.Find(before) == nil
	}, 30*time.Second, time.Millisecond)
}
