package redlock_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
	for _, goroutines := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			var writes writeCounter
			l, err := redlock.New(benchmarkNodes(b), redlock.WithDialer(writes.dial))
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
			writes.Store(0)
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
			b.ReportMetric(float64(writes.Load())/float64(b.N), "writes/op")
		})
	}
}

// writeCounter counts the writes to the connections that it dials.
type writeCounter struct{ atomic.Int64 }

func (w *writeCounter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return countingConn{conn, w}, nil
}

type countingConn struct {
	net.Conn
	writes *writeCounter
}

func (c countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
