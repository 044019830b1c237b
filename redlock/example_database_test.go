package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

// accounts stands for a table with a column for the fencing token of the last
// write:
//
//	CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL DEFAULT 0)
type accounts struct {
	mu   sync.Mutex
	rows map[string]account
}

type account struct {
	balance int
	fence   uint64
}

var errStale = errors.New("refused: written by a later holder of the lock")

// write does what this statement does, and finds no row that it may change if a
// later holder has written:
//
//	UPDATE accounts SET balance = $2, fence = $3 WHERE id = $1 AND fence <= $3
func (a *accounts) write(id string, balance int, fence uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rows[id].fence > fence { // no row affected
		return errStale
	}
	a.rows[id] = account{balance, fence}
	return nil
}

func (a *accounts) read(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rows[id].balance
}

// deposit reads, is slow, and writes. The lock keeps deposits apart; the token
// keeps a deposit that was paused for longer than its lock lasted from
// overwriting those that came after it.
func deposit(ctx context.Context, locker *redlock.Locker, db *accounts, id string, amount int, slow func()) error {
	lock, err := locker.Acquire(ctx, "account:"+id, redlock.WithFencing(true), redlock.WithTTL(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()
	balance := db.read(id)
	slow()
	return db.write(id, balance+amount, lock.FencingToken())
}

// A database write that is guarded by a fencing token. The deposit of 5 is paused
// until its lock has expired and somebody else has deposited 7; its own write,
// computed from the old balance, would undo that.
func Example_databaseWrite() {
	locker, stop := newExample()
	defer stop()
	ctx := context.Background()
	db := &accounts{rows: map[string]account{"alice": {balance: 100}}}

	err := deposit(ctx, locker, db, "alice", 5, func() {
		err := deposit(ctx, locker, db, "alice", 7, func() {}) // waits for the lock to expire
		fmt.Println("7:", err)
	})
	fmt.Println("5:", err)
	fmt.Println("balance", db.read("alice"))
	// Output:
	// 7: <nil>
	// 5: refused: written by a later holder of the lock
	// balance 107
}
