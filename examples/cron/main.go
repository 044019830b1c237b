// Command cron shows a job that runs once per tick, however many replicas of a
// service are there to run it.
//
//	go run ./examples/cron                               # on embedded nodes
//	REDLOCK_NODES=host1:6379,host2:6379,host3:6379 go run ./examples/cron
//
// Three things make it work:
//
//   - Each tick has a lock of its own, named after the time it stands for, so
//     a replica that is late for one tick cannot take the next away.
//   - That others hold the lock is no error: it means that the job is being
//     done, or has been. Replicas wait a moment nevertheless, and do not make a
//     single attempt. At the same tick they all ask at once, and when the nodes
//     are divided between them nobody has won: with TryAcquire it could happen
//     that no replica runs the job.
//   - A replica that has done the job keeps the lock until its TTL ends, longer
//     than the replicas' clocks differ and longer than anybody waits. Released
//     at once, the lock would be free again for a replica whose tick comes a
//     moment later. One that has failed releases it, for another may do better.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

const (
	period   = 500 * time.Millisecond // of the job; a real one has minutes or hours
	skew     = 2 * time.Second        // by which the replicas' clocks may differ
	ticks    = 5                      // after which the example ends
	replicas = 3                      // here in one process, otherwise in one each
	patience = 250 * time.Millisecond // to settle a divided vote, or to stand in for a failure
)

func main() {
	if err := run(context.Background(), report); err != nil {
		log.Fatal(err)
	}
}

// job is what has to be done at a tick.
type job func(self string, tick time.Time) error

func run(ctx context.Context, do job) error {
	var addrs []string
	if named := os.Getenv("REDLOCK_NODES"); named != "" {
		addrs = strings.Split(named, ",")
	} else {
		cluster, err := redlocktest.New(3)
		if err != nil {
			return err
		}
		defer cluster.Close()
		addrs = cluster.Addrs()
	}

	var wg sync.WaitGroup
	errs := make([]error, replicas)
	for i := range replicas {
		self := fmt.Sprintf("replica-%d", i+1)
		locker, err := redlock.New(addrs, redlock.WithOwner(self), redlock.WithTTL(skew))
		if err != nil {
			return err
		}
		defer func() { _ = locker.Close() }()
		wg.Go(func() { errs[i] = replica(ctx, self, locker, do) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// replica is what each process of the service runs.
func replica(ctx context.Context, self string, locker *redlock.Locker, do job) error {
	next := time.Now().Truncate(period)
	for range ticks {
		next = next.Add(period)
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}

		lock, err := acquire(ctx, locker, "cron:report:"+next.UTC().Format(time.RFC3339Nano))
		switch {
		case errors.Is(err, redlock.ErrTaken):
			continue // somebody else's turn
		case err != nil:
			fmt.Printf("%s cannot tell whose turn it is: %v\n", self, err)
			continue
		}
		if err := do(self, next); err != nil {
			fmt.Printf("%s failed and releases the lock: %v\n", self, err)
			if err := lock.Release(ctx); err != nil {
				fmt.Printf("%s: %v\n", self, err)
			}
		}
	}
	return nil
}

func acquire(ctx context.Context, locker *redlock.Locker, name string) (*redlock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return locker.Acquire(ctx, name)
}

// report is the job here. It does not always succeed.
func report(self string, tick time.Time) error {
	if rand.N(5) == 0 {
		return errors.New("out of paper")
	}
	fmt.Printf("%s  report by %s\n", tick.Format("15:04:05.000"), self)
	return nil
}
