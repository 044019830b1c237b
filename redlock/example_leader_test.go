package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

// stand stands for election until ctx ends, and leads whenever elected.
//
// While lead runs the lock is renewed in the background. If it is lost all the
// same, the context of the term ends, and lead must return: another may lead
// already. When lead returns, it hands over: the lock is released, and whoever
// waits for it hears so at once.
func stand(ctx context.Context, locker *redlock.Locker, lead func(term context.Context)) error {
	for ctx.Err() == nil {
		err := locker.Do(ctx, "leader", func(term context.Context, _ *redlock.Lock) error {
			lead(term)
			return nil
		}, redlock.WithTTL(5*time.Second)) // for that long nobody leads when a leader crashes
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// A leader that hands over when it is told to stop.
func Example_leader() {
	nodes, stop := addrs()
	defer stop()

	var candidates sync.WaitGroup
	begin := func(name string) (leads chan struct{}, stop context.CancelFunc) {
		locker, err := redlock.New(nodes, redlock.WithOwner(name))
		if err != nil {
			panic(err)
		}
		leads = make(chan struct{})
		ctx, stop := context.WithCancel(context.Background())
		candidates.Go(func() {
			defer func() { _ = locker.Close() }()
			err := stand(ctx, locker, func(term context.Context) {
				fmt.Println(name, "leads")
				close(leads)
				<-term.Done() // the work
				fmt.Println(name, "hands over")
			})
			if err != nil {
				fmt.Println(err)
			}
		})
		return leads, stop
	}

	leads, stopFirst := begin("first")
	<-leads
	leads, stopSecond := begin("second") // waits its turn
	stopFirst()
	<-leads
	stopSecond()
	candidates.Wait()
	// Output:
	// first leads
	// first hands over
	// second leads
	// second hands over
}
