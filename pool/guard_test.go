package pool_test

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
)

func TestAnOldNodeGrantsAtOnceUnderTheRestartGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{info: func(int) string { return info("one", 11) }})
		r := f.rig(t, pool.WithRestartGuard(10*time.Second))
		r.mustCall(t, acquire("key", "token"))
		assert.Equal(t, pool.Identity{RunID: "one", Uptime: 11 * time.Second}, r.Stat().Identity)
	})
}

func TestARestartedNodeAbstainsFromGrantingOnly(t *testing.T) {
	const guard = 10 * time.Second
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node, r := embedded(t, pool.WithRestartGuard(guard))
		time.Sleep(guard + 2*time.Second)
		r.mustCall(t, acquire("key", "token"))
		require.NoError(t, node.Restart())
		restarted := r.clock.Elapsed()
		time.Sleep(100 * time.Millisecond) // the pool has looked while nobody listened
		for r.clock.Elapsed() < restarted+guard {
			result := r.call(t, acquire("other", "token"))
			require.ErrorIs(t, result.Err, pool.ErrRestarted)
			require.Equal(t, pool.Never, result.Sent)
			require.EqualValues(t, 1, r.mustCall(t, renew()))
			require.EqualValues(t, 0, r.mustCall(t, release("other")))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second + 100*time.Millisecond)
		assert.EqualValues(t, 0, r.mustCall(t, acquire("other", "token")))
	})
}

// The ways in which a node that may have forgotten locks could slip through.
func TestTheRestartGuardHasNoHoles(t *testing.T) {
	const guard = 10 * time.Second
	grants := func(t *testing.T, r *rig) bool {
		t.Helper()
		result := r.call(t, acquire("key", "token"))
		if result.Err == nil {
			return true
		}
		require.ErrorIs(t, result.Err, pool.ErrRestarted)
		return false
	}
	reconnect := func(f *fake) {
		_ = f.conn().Close()
		time.Sleep(50 * time.Millisecond)
	}

	t.Run("uptime is rounded up, by two clocks that are cut off to seconds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			// Started at 0.9 s, asked at 9.0 s: 9 − 0 = 9, but it ran 8.1 s.
			f := serve(t, &fake{info: func(int) string { return info("one", 9) }})
			r := f.rig(t, pool.WithRestartGuard(guard))
			assert.False(t, grants(t, r))
			time.Sleep(1899 * time.Millisecond)
			assert.False(t, grants(t, r))
			time.Sleep(101 * time.Millisecond)
			assert.True(t, grants(t, r))
		})
	})

	t.Run("another server, old itself, takes over the address", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := serve(t, &fake{info: func(n int) string { return info(fmt.Sprint("server", n), 1_000_000) }})
			r := f.rig(t, pool.WithRestartGuard(guard))
			assert.True(t, grants(t, r), "the first is only known by its uptime")
			reconnect(f)
			assert.False(t, grants(t, r))
			time.Sleep(guard)
			assert.True(t, grants(t, r))
		})
	})

	t.Run("the connection is replaced during the quarantine", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := serve(t, &fake{info: func(n int) string {
				if n == 1 {
					return info("first", 1_000_000)
				}
				return info("second", 1_000_000)
			}})
			r := f.rig(t, pool.WithRestartGuard(guard))
			assert.True(t, grants(t, r))
			reconnect(f)
			assert.False(t, grants(t, r))
			reconnect(f)
			assert.False(t, grants(t, r), "the same server as a moment ago, in the same quarantine")
		})
	})

	t.Run("the node does not say who it is in between", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := serve(t, &fake{info: func(n int) string {
				switch n {
				case 1:
					return info("first", 1_000_000)
				case 2:
					return "-NOPERM no INFO today\r\n"
				}
				return info("second", 1_000_000)
			}})
			r := f.rig(t, pool.WithRestartGuard(guard))
			assert.True(t, grants(t, r))
			reconnect(f)
			r.mustCall(t, renew())
			reconnect(f)
			assert.False(t, grants(t, r))
		})
	})

	t.Run("an acquire that waits meets a node that restarted", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := serve(t, &fake{})
			f.info = func(n int) string {
				if n == 1 {
					return info("first", 1_000_000)
				}
				return info("second", 0)
			}
			f.handle = func(n int, conn net.Conn, _ []string) string {
				if n == 1 {
					_ = conn.Close()
				}
				return ":1\r\n"
			}
			r := f.rig(t, pool.WithRestartGuard(guard))
			b := newBox()
			ids := make([]int, 20)
			for i := range ids {
				ids[i] = r.send(b, acquire("key", "token"))
			}
			for _, id := range ids {
				assert.Error(t, b.await(t, id).Err)
			}
		})
	})
}

func TestTheRestartGuardNeedsInfoAndSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const denied = "NOPERM this user has no permissions to run the 'info' command"
		f := serve(t, &fake{info: func(int) string { return "-" + denied + "\r\n" }})
		r := f.rig(t, pool.WithRestartGuard(time.Second))
		result := r.call(t, acquire("key", "token"))
		require.ErrorContains(t, result.Err, "restart guard")
		require.ErrorContains(t, result.Err, denied)
		assert.Equal(t, pool.Never, result.Sent)
		assert.True(t, pool.Permanent(result.Err))
		r.mustCall(t, renew())
		r.mustCall(t, release("key"))

		without := f.rig(t)
		without.mustCall(t, acquire("key", "token"))
		assert.ErrorContains(t, without.Stat().Identity.Err, denied)
	})
}

// Two calls that are refused at once each learn their own reason.
func TestRefusedCallsLearnTheirOwnReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, &fake{info: func(int) string { return info("one", 0) }})
		r := f.rig(t, pool.WithRestartGuard(time.Minute))
		unwanted, wanted := newBox(), newBox()
		first := r.send(unwanted, acquire("key", "token"))
		second := r.send(wanted, acquire("key", "token"))
		unwanted.unwanted.Store(true)
		require.ErrorIs(t, unwanted.await(t, first).Err, pool.ErrUnwanted)
		assert.ErrorIs(t, wanted.await(t, second).Err, pool.ErrRestarted)
	})
}
