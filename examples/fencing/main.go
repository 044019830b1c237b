// Command fencing shows why a lock alone cannot protect a resource from a
// holder that was paused, and how a fencing token does.
//
//	go run ./examples/fencing
//
// Two workers each add to an account under the same lock. The first is paused
// between reading and writing, for longer than its lock lasts; meanwhile the
// second takes the lock, reads, writes, and is done. Then the first goes on and
// writes what it had computed long ago.
//
// The account is a row in a table, and the write is what it would be in SQL:
//
//	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence < $2
//
// with one difference between the two runs: whether fence is looked at.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

// ttl is short, so that the example is. The pause must be longer.
const (
	ttl   = 300 * time.Millisecond
	pause = 2 * ttl
)

func main() {
	for _, fenced := range []bool{false, true} {
		balance, err := run(context.Background(), fenced)
		if err != nil {
			log.Fatal(err)
		}
		verdict := "correct"
		if balance != 150 {
			verdict = "CORRUPT: the second deposit is gone"
		}
		fmt.Printf("the balance is %d, and should be 150: %s\n\n", balance, verdict)
	}
}

// table is a table with one row. Each statement is atomic, as in a database.
type table struct {
	mu      sync.Mutex
	balance int
	fence   uint64
}

func (t *table) selectBalance() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.balance
}

// update is the statement above. It returns how many rows were changed.
func (t *table) update(balance int, fence uint64, fenced bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fenced && t.fence >= fence {
		return 0
	}
	t.balance, t.fence = balance, max(t.fence, fence)
	return 1
}

var errStale = errors.New("the row was written under a later lock")

// deposit adds amount to the account under the lock. stall is called between
// reading and writing.
func deposit(ctx context.Context, locker *redlock.Locker, accounts *table, amount int, fenced bool, stall func()) error {
	lock, err := locker.Acquire(ctx, "account-7", redlock.WithTTL(ttl), redlock.WithFencing(true))
	if err != nil {
		return err
	}
	// If the lock was lost, Release says so: too late, if the write is done.
	defer func() { _ = lock.Release(ctx) }()

	balance := accounts.selectBalance() + amount
	stall()
	// A look at lock.Validity() would find out here, and still not be enough:
	// the pause might as well come between that look and the write.
	if accounts.update(balance, lock.FencingToken(), fenced) == 0 {
		return errStale
	}
	return nil
}

func run(ctx context.Context, fenced bool) (balance int, err error) {
	if fenced {
		fmt.Println("With the fencing token:")
	} else {
		fmt.Println("Without the fencing token:")
	}
	cluster, err := redlocktest.New(3)
	if err != nil {
		return 0, err
	}
	defer cluster.Close()
	locker, err := redlock.New(cluster.Addrs())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()

	accounts := &table{}
	paused := make(chan struct{})
	first := make(chan error)
	go func() {
		first <- deposit(ctx, locker, accounts, 100, fenced, func() {
			fmt.Println("  worker 1 has read the balance, and is paused")
			close(paused)
			time.Sleep(pause)
			fmt.Println("  worker 1 goes on")
		})
	}()
	<-paused
	if err := deposit(ctx, locker, accounts, 50, fenced, func() {}); err != nil {
		return 0, err
	}
	fmt.Println("  worker 2 got the lock when worker 1's had ended, and added 50")

	switch err := <-first; {
	case errors.Is(err, errStale):
		fmt.Println("  worker 1's write is refused; it starts again and adds 100")
		if err := deposit(ctx, locker, accounts, 100, fenced, func() {}); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, err
	default:
		fmt.Println("  worker 1 wrote 100 over it")
	}
	return accounts.selectBalance(), nil
}
