package redlock_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// benchmarkNodes are the nodes that REDLOCK_NODES names, or five embedded
// ones, whose figures tell more about the embedded nodes than about us.
func benchmarkNodes(b *testing.B) []string {
	if nodes := os.Getenv("REDLOCK_NODES"); nodes != "" {
		return strings.Split(nodes, ",")
	}
	return redlocktest.Start(b, 5).Addrs()
}

// BenchmarkAcquireRelease measures pairs of TryAcquire and Release by so many
// goroutines, each on a name of its own.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, goroutines := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			l, err := redlock.New(benchmarkNodes(b))
			require.NoError(b, err)
			defer func() { require.NoError(b, l.Close()) }()
			pair := func(name string) {
				k, err := l.TryAcquire(b.Context(), name)
				if err != nil {
					b.Error(err)
					return
				}
				if err := k.Release(b.Context()); err != nil {
					b.Error(err)
				}
			}
			pair("warm-up")
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					name := fmt.Sprintf("bench-%d", g)
					for range (b.N + goroutines - 1 - g) / goroutines {
						pair(name)
					}
				})
			}
			wg.Wait()
		})
	}
}
