package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

// report runs a job on behalf of one replica of a service. Every replica calls
// it when its own clock says that it is time.
//
// The lock is named after the tick, so a replica that is late for this one
// cannot take the next away. It is kept for a minute even if the job is done in
// a second: longer than the replicas' clocks are apart, or one that is behind
// would do the job again.
func report(ctx context.Context, locker *redlock.Locker, tick time.Time) error {
	// Not TryAcquire: at the same tick all replicas ask at once, and when the
	// nodes are divided between them nobody has won.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	lock, err := locker.Acquire(ctx, "report:"+tick.Format(time.RFC3339), redlock.WithMinHold(time.Minute))
	if errors.Is(err, redlock.ErrTaken) {
		return nil // it is being done, or has been
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()
	fmt.Println("writing the report for", tick.Format("15:04"))
	return nil
}

// A cron job that only one replica runs, however many there are.
func Example_cron() {
	nodes, stop := addrs()
	defer stop()
	tick := time.Date(2030, time.May, 1, 8, 0, 0, 0, time.UTC)

	var replicas sync.WaitGroup
	for range 3 {
		locker, err := redlock.New(nodes) // each replica has its own
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = locker.Close() }()
		replicas.Go(func() {
			if err := report(context.Background(), locker, tick); err != nil {
				fmt.Println(err)
			}
		})
	}
	replicas.Wait()
	// Output: writing the report for 08:00
}
