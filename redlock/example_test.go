package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// addrs are the nodes of the examples: five embedded ones. A program would
// write "redis1:6379" and so on.
func addrs() ([]string, func()) {
	cluster, err := redlocktest.New(5)
	if err != nil {
		panic(err)
	}
	return cluster.Addrs(), cluster.Close
}

func newExample(opts ...redlock.Option) (*redlock.Locker, func()) {
	nodes, stop := addrs()
	locker, err := redlock.New(nodes, opts...)
	if err != nil {
		panic(err)
	}
	return locker, func() {
		_ = locker.Close()
		stop()
	}
}

func Example() {
	nodes, stop := addrs()
	defer stop()

	locker, err := redlock.New(nodes, redlock.WithTTL(5*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()

	lock, err := locker.Acquire(context.Background(), "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holding", lock.Name())
	if err := lock.Release(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(lock.Err())
	// Output:
	// holding invoices
	// redlock: lock released
}

// The recommended way: the lock is renewed while the function runs, and
// released whatever happens.
func ExampleLocker_Do() {
	locker, stop := newExample()
	defer stop()

	err := locker.Do(context.Background(), "invoices", func(ctx context.Context, lock *redlock.Lock) error {
		// Pass ctx on: it ends when the lock is lost.
		fmt.Println("sending, under", lock.Name())
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// sending, under invoices
	// <nil>
}

// One attempt: whoever does not get the lock does something else.
func ExampleLocker_TryAcquire() {
	locker, stop := newExample()
	defer stop()

	first, err := locker.TryAcquire(context.Background(), "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = first.Release(context.Background()) }()

	_, err = locker.TryAcquire(context.Background(), "invoices")
	switch {
	case errors.Is(err, redlock.ErrTaken):
		fmt.Println("somebody else is at it")
	case errors.Is(err, redlock.ErrNoQuorum):
		fmt.Println("too few nodes answer:", err)
	}
	// Output: somebody else is at it
}

// Work that is given up when the lock is lost.
func ExampleLock_Context() {
	locker, stop := newExample(redlock.WithTTL(100 * time.Millisecond))
	defer stop()

	lock, err := locker.Acquire(context.Background(), "invoices") // and nobody renews it
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := lock.Context(context.Background())
	defer cancel()

	select {
	case <-time.After(time.Minute): // the work
	case <-ctx.Done():
		fmt.Println(context.Cause(ctx))
	}
	fmt.Println(errors.Is(lock.Release(context.Background()), redlock.ErrLost))
	// Output:
	// redlock: lock "invoices" lost: expired
	// true
}

// Several names, all or none: no order to keep, and no deadlock.
func ExampleLocker_AcquireAll() {
	locker, stop := newExample()
	defer stop()

	lock, err := locker.AcquireAll(context.Background(), []string{"account 7", "account 3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lock.Release(context.Background()) }()
	fmt.Println(lock.Names())

	_, err = locker.TryAcquireAll(context.Background(), []string{"account 3", "account 9"})
	var failed *redlock.QuorumError
	if errors.As(err, &failed) {
		fmt.Println("held by others:", failed.Held)
	}
	// Output:
	// [account 3 account 7]
	// held by others: [account 3]
}

// store refuses writes with a number that is smaller than one it has seen.
type store struct{ newest uint64 }

func (s *store) write(fence uint64, what string) {
	if fence < s.newest {
		fmt.Println("refused:", what)
		return
	}
	s.newest = fence
	fmt.Println("written:", what)
}

// A holder that was paused past its TTL writes late. The number of its lock
// gives it away.
func ExampleWithFencing() {
	locker, stop := newExample(redlock.WithFencing(true), redlock.WithTTL(100*time.Millisecond))
	defer stop()
	var s store

	slow, err := locker.Acquire(context.Background(), "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	<-slow.Done() // a long pause

	next, err := locker.Acquire(context.Background(), "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	s.write(next.FencingToken(), "by the next holder")
	s.write(slow.FencingToken(), "by the slow one")
	// Output:
	// written: by the next holder
	// refused: by the slow one
}

func ExampleLocker_List() {
	locker, stop := newExample(redlock.WithOwner("worker 7"))
	defer stop()
	ctx := context.Background()

	for _, name := range []string{"order:1", "order:2", "invoices"} {
		if _, err := locker.Acquire(ctx, name); err != nil {
			fmt.Println(err)
			return
		}
	}
	for status, err := range locker.List(ctx, "order:*") {
		if err != nil {
			fmt.Println(err) // one node; the others go on
			continue
		}
		fmt.Println(status.Name, "is", status.State, "by", status.Owner)
	}
	// Unordered output:
	// order:1 is held by worker 7
	// order:2 is held by worker 7
}

func ExampleLocker_Check() {
	locker, stop := newExample(redlock.WithRestartGuard(time.Minute))
	defer stop()

	report, err := locker.Check(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, finding := range report.Findings {
		if finding.Level == redlock.LevelWarning && finding.What == "uptime" {
			fmt.Println("a node has just started, and grants nothing yet")
			break
		}
	}
	// Output:
	// a node has just started, and grants nothing yet
}

// Code that wants a sync.Locker and cannot be changed gets one. Read what it
// cannot do before.
func ExampleLocker_Mutex() {
	locker, stop := newExample()
	defer stop()

	count := func(mu sync.Locker, of *int) {
		mu.Lock()
		defer mu.Unlock()
		*of++
	}
	invoices := 0
	mu := locker.Mutex("invoices", redlock.WithMaxHold(time.Minute))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { count(mu, &invoices) })
	}
	wg.Wait()
	fmt.Println(invoices)
	// Output: 10
}
