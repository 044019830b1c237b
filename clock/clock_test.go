package clock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func clocks() map[string]clock.Clock {
	return map[string]clock.Clock{"system": clock.System(), "monotonic": clock.Monotonic()}
}

func TestConcurrentReadersNeverSeeAClockGoBackwards(t *testing.T) {
	for name, c := range clocks() {
		t.Run(name, func(t *testing.T) {
			// A reading may be compared with any that was finished before it began,
			// by whichever goroutine, on whichever processor.
			var latest atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 5000 {
						before := latest.Load()
						now := int64(c.Elapsed())
						if now < before {
							assert.Fail(t, "backwards", "%d ns", before-now)
							return
						}
						for now > before && !latest.CompareAndSwap(before, now) {
							before = latest.Load()
						}
					}
				})
			}
			wg.Wait()
			assert.Positive(t, latest.Load(), "it does not move")
		})
	}
}

func TestReadingAClockAllocatesNothing(t *testing.T) {
	for name, c := range clocks() {
		t.Run(name, func(t *testing.T) {
			var sink time.Duration
			assert.Zero(t, testing.AllocsPerRun(1000, func() { sink += c.Elapsed() }))
			assert.Positive(t, sink)
		})
	}
}

func TestTheClocksMeasureTheSameTime(t *testing.T) {
	system, monotonic := clock.System(), clock.Monotonic()
	s0, m0 := system.Elapsed(), monotonic.Elapsed()
	for m := m0; m < m0+20*time.Millisecond; {
		m = monotonic.Elapsed()
		// Read in this order, the system's interval encloses the other.
		require.GreaterOrEqual(t, system.Elapsed()-s0, m-m0)
	}
}

func TestNowIsTheWallClock(t *testing.T) {
	for name, c := range clocks() {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			now := c.Now()
			assert.False(t, now.Before(before))
			assert.False(t, now.After(time.Now()))
		})
	}
}

func TestMonotonicFollowsTheVirtualTimeOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Monotonic()
		require.Zero(t, c.Elapsed(), "it counts from its making")
		time.Sleep(10 * time.Second)
		assert.Equal(t, 10*time.Second, c.Elapsed())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 10*time.Second+1, c.Elapsed())
		assert.Equal(t, time.Now(), c.Now())
	})
}

func TestMonotonicClocksCountFromTheirOwnMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := clock.Monotonic()
		time.Sleep(time.Hour)
		second := clock.Monotonic()
		time.Sleep(time.Minute)
		assert.Equal(t, time.Hour+time.Minute, first.Elapsed())
		assert.Equal(t, time.Minute, second.Elapsed())
	})
}
