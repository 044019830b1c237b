package integration_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/redlock"
)

// BenchmarkHeldLocks holds b.N locks at once on five nodes, renewed in the
// background, for more than one TTL, and reports what one costs. Ask for a
// number of locks, not for a time:
//
//	go test -run '^$' -bench HeldLocks -benchtime 100000x .
func BenchmarkHeldLocks(b *testing.B) {
	c := nodes.Start(b, 5)
	l, err := redlock.New(c.URLs())
	require.NoError(b, err)
	defer func() { require.NoError(b, l.Close()) }()
	// Three renewals a TTL: 5,000 a second for 100,000 locks.
	ttl := max(3*time.Second, time.Duration(b.N)*600*time.Microsecond).Truncate(time.Millisecond)

	warm, err := l.Acquire(b.Context(), "warm-up")
	require.NoError(b, err)
	require.NoError(b, warm.Release(b.Context()))
	before, goroutines := heap(), runtime.NumGoroutine()

	b.ResetTimer()
	locks := make([]*redlock.Lock, b.N)
	each(len(locks), func(i int) {
		k, err := l.Acquire(b.Context(), fmt.Sprintf("lock-%d", i), redlock.WithTTL(ttl), redlock.WithAutoRenew(true))
		if err != nil {
			b.Error(err)
			return
		}
		locks[i] = k
	})
	if b.Failed() {
		return
	}
	per := float64(heap()-before) / float64(b.N)
	extra := runtime.NumGoroutine() - goroutines

	least, lost := ttl, 0
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 50) {
		for _, k := range locks {
			if left := k.Validity(); left == 0 {
				lost++
			} else {
				least = min(least, left)
			}
		}
	}
	b.StopTimer()
	require.Zero(b, lost, "locks were lost")
	b.ReportMetric(per, "B/lock")
	b.ReportMetric(float64(extra), "goroutines")
	b.ReportMetric(100*least.Seconds()/ttl.Seconds(), "%TTL-left-at-least")
	each(len(locks), func(i int) {
		if err := locks[i].Release(b.Context()); err != nil {
			b.Error(err)
		}
	})
}

// each calls do for 0 to n-1 from a few goroutines.
func each(n int, do func(i int)) {
	const workers = 64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	wg.Wait()
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
