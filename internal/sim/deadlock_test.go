package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/sim"
	"github.com/redquorum/go-redlock/redlock"
)

// Clients that want overlapping sets of names, each in an order of their own,
// all get them, and soon: nobody holds some names while waiting for others.
func TestOverlappingSetsOfNamesNeverDeadlock(t *testing.T) {
	first := uint64(rand.Uint32())
	for seed := first; seed < first+100; seed++ {
		synctest.Test(t, func(t *testing.T) {
			cluster := sim.NewCluster(3, seed)
			done := make(chan struct{})
			for i := range 2 {
				l, err := redlock.New(cluster.Addrs(), redlock.WithDialer(cluster.Dialer(i)), redlock.WithClock(clock.Monotonic()))
				require.NoError(t, err)
				defer l.Close()
				go func() {
					defer func() { done <- struct{}{} }()
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 10 {
						names := []string{"shared"} // with one name in common at the least
						for _, other := range r.Perm(4)[:1+r.IntN(4)] {
							names = append(names, fmt.Sprint(other))
						}
						r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
						// No lock ends by itself in this time.
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
						k, err := l.AcquireAll(ctx, names, redlock.WithTTL(time.Hour))
						cancel()
						if err != nil {
							t.Errorf("seed %d: %v", seed, err)
							return
						}
						time.Sleep(between(r, 0, 20*time.Millisecond))
						if err := k.Release(t.Context()); err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
					}
				}()
			}
			<-done
			<-done
		})
	}
}
