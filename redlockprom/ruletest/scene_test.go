package ruletest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlockprom"
	"github.com/redquorum/go-redlock/redlocktest"
)

// A scene is a process that uses locks, in virtual time.
type scene struct {
	*testing.T
	cluster *redlocktest.Cluster
	locker  *redlock.Locker
}

// play runs a scene on some nodes and returns what Prometheus has seen of it.
func play(t *testing.T, nodes int, act func(*scene)) *store {
	t.Helper()
	seen := newStore()
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, nodes)
		metrics := redlockprom.New("orders", redlockprom.WithNames(func(string) string { return "invoice" }))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		locker, err := redlock.New(cluster.Addrs(), redlock.WithObserver(metrics),
			redlock.WithDialer(cluster.Dial), redlock.WithClock(clock.Monotonic()))
		require.NoError(t, err)
		metrics.Track(locker)

		done := make(chan struct{})
		var scraper sync.WaitGroup
		scraper.Go(func() {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					seen.scrape(t, registry)
				case <-done:
					return
				}
			}
		})
		act(&scene{t, cluster, locker})
		close(done)
		scraper.Wait()
		require.NoError(t, locker.Close())
	})
	return seen
}

// work does what a process does all day, for a while: short jobs under a lock,
// two at a time, of which each must wait for the other, and long ones that renew.
// It goes on whatever comes of them.
func (s *scene) work(d time.Duration) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	var workers sync.WaitGroup
	for _, job := range []struct {
		name         string
		takes, pause time.Duration
	}{
		{"short", 50 * time.Millisecond, 4 * time.Second},
		{"short", 80 * time.Millisecond, 4 * time.Second},
		{"long", 25 * time.Second, 5 * time.Second},
	} {
		workers.Go(func() {
			for ctx.Err() == nil {
				own, cancel := context.WithTimeout(ctx, time.Minute)
				_ = s.locker.Do(own, job.name, func(ctx context.Context, _ *redlock.Lock) error {
					sleep(ctx, job.takes)
					return nil
				})
				cancel()
				sleep(ctx, job.pause)
			}
		})
	}
	workers.Wait()
}

// hold holds a lock without renewing it, again and again for a while.
func (s *scene) hold(name string, each, d time.Duration) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	for ctx.Err() == nil {
		lock, err := s.locker.Acquire(ctx, name)
		if err != nil {
			continue
		}
		sleep(ctx, each)
		_ = lock.Release(s.Context())
	}
}

// together does several things at once.
func together(acts ...func()) {
	var all sync.WaitGroup
	for _, act := range acts {
		all.Go(act)
	}
	all.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
