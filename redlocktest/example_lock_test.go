package redlocktest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// charge is what is to be tested: a piece of a program that works under a lock.
func charge(ctx context.Context, locker *redlock.Locker) error {
	return locker.Do(ctx, "charge", func(ctx context.Context, _ *redlock.Lock) error {
		return ctx.Err() // ends if the lock is lost
	}, redlock.WithOutageTolerance(0))
}

// A test of code that uses the library: does it work while a minority of nodes
// is down, and does it say so when a majority
// is? A test has Start(t, 5) instead of New and Close, and if it is about time,
// StartPiped(t, 5) in a testing/synctest bubble.
func Example_testOfYourOwn() {
	cluster, err := redlocktest.New(5)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	locker, err := redlock.New(cluster.Addrs())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()
	ctx := context.Background()

	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	fmt.Println("two nodes down:", charge(ctx, locker))
	fmt.Println("what is left behind:", len(cluster.Holders("charge")))

	cluster.Node(2).Stop()
	err = charge(ctx, locker)
	fmt.Println("three nodes down, no quorum:", errors.Is(err, redlock.ErrNoQuorum))
	// Output:
	// two nodes down: <nil>
	// what is left behind: 0
	// three nodes down, no quorum: true
}
