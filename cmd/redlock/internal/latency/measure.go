package latency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

// Plan says what to measure.
type Plan struct {
	Duration    time.Duration // how long
	Concurrency int           // how many locks are acquired and released side by side
}

// Validate returns what is wrong with the plan.
func (p Plan) Validate() error {
	switch {
	case p.Duration <= 0:
		return fmt.Errorf("duration of %v: want more than 0", p.Duration)
	case p.Concurrency < 1 || p.Concurrency > 10_000:
		return fmt.Errorf("concurrency of %d: want 1 to 10000", p.Concurrency)
	}
	return nil
}

// Report is what was measured.
type Report struct {
	Elapsed time.Duration
	// How long it took to acquire a lock, to release it, and both together.
	// Only pairs that went well are in it.
	Acquire, Release, Pair Histogram
	// What did not go well, by reason, and the last of it.
	NoQuorum, Taken, Lost, Other uint64
	Last                         error
}

// Failures returns how many pairs did not go well.
func (r *Report) Failures() uint64 { return r.NoQuorum + r.Taken + r.Lost + r.Other }

// Measure acquires and releases locks that nobody else uses until the plan's
// time is over or ctx ends. The first pair, which opens the connections, is
// not in the report; its error is returned.
func Measure(ctx context.Context, locker *redlock.Locker, plan Plan) (*Report, error) {
	name := "redlock-bench:" + rand.Text()
	if err := new(Report).pair(ctx, locker, name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, plan.Duration)
	defer cancel()
	began := time.Now()
	reports := make([]Report, plan.Concurrency)
	var wg sync.WaitGroup
	for i := range reports {
		wg.Go(func() { reports[i].work(ctx, locker, fmt.Sprintf("%s:%d", name, i)) })
	}
	wg.Wait()
	total := &Report{Elapsed: time.Since(began)}
	for i := range reports {
		total.add(&reports[i])
	}
	return total, nil
}

// after a failure, so that a cluster in trouble is not given more of it.
const after = 20 * time.Millisecond

func (r *Report) work(ctx context.Context, locker *redlock.Locker, name string) {
	for ctx.Err() == nil {
		err := r.pair(ctx, locker, name)
		if err == nil || ctx.Err() != nil {
			continue
		}
		r.fail(err)
		select {
		case <-time.After(after):
		case <-ctx.Done():
		}
	}
}

func (r *Report) pair(ctx context.Context, locker *redlock.Locker, name string) error {
	began := time.Now()
	lock, err := locker.TryAcquire(ctx, name)
	if err != nil {
		return err
	}
	acquired := time.Now()
	// A pair that has begun is measured to its end.
	if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	released := time.Now()
	r.Acquire.Record(acquired.Sub(began))
	r.Release.Record(released.Sub(acquired))
	r.Pair.Record(released.Sub(began))
	return nil
}

func (r *Report) fail(err error) {
	r.Last = err
	switch {
	case errors.Is(err, redlock.ErrLost):
		r.Lost++
	case errors.Is(err, redlock.ErrNoQuorum):
		r.NoQuorum++
	case errors.Is(err, redlock.ErrTaken):
		r.Taken++
	default:
		r.Other++
	}
}

func (r *Report) add(other *Report) {
	r.Acquire.Add(&other.Acquire)
	r.Release.Add(&other.Release)
	r.Pair.Add(&other.Pair)
	r.NoQuorum += other.NoQuorum
	r.Taken += other.Taken
	r.Lost += other.Lost
	r.Other += other.Other
	if other.Last != nil {
		r.Last = other.Last
	}
}
