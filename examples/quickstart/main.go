// Command quickstart is the shortest useful program on package redlock: it runs
// a function that no other process runs at the same time.
//
//	go run ./examples/quickstart                         # on embedded nodes
//	go run ./examples/quickstart host1:6379 host2:6379 host3:6379
//
// The nodes may also be named in REDLOCK_NODES, comma separated.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addrs []string) error {
	if named := os.Getenv("REDLOCK_NODES"); len(addrs) == 0 && named != "" {
		addrs = strings.Split(named, ",")
	}
	if len(addrs) == 0 {
		fmt.Println("no nodes named: using three embedded ones")
		cluster, err := redlocktest.New(3)
		if err != nil {
			return err
		}
		defer cluster.Close()
		addrs = cluster.Addrs()
	}

	locker, err := redlock.New(addrs)
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close() }()

	// Without a deadline, Do would wait for as long as others hold the lock.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return locker.Do(ctx, "quickstart", func(ctx context.Context, lock *redlock.Lock) error {
		fmt.Printf("%s holds %q, for another %v if nobody renews it\n",
			lock.Owner(), lock.Name(), lock.Validity().Round(time.Millisecond))

		// The work. Do renews the lock meanwhile; ctx ends if it is lost.
		select {
		case <-time.After(time.Second):
			fmt.Println("done; the lock is released")
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
