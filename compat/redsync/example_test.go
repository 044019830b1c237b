package redsync_test

import (
	"fmt"

	redigolib "github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/compat/redsync"
	"github.com/redquorum/go-redlock/compat/redsync/redis"
	"github.com/redquorum/go-redlock/compat/redsync/redis/redigo"
	"github.com/redquorum/go-redlock/redlocktest"
)

// A program that was written for redsync: only its import paths have changed.
func Example() {
	cluster, err := redlocktest.New(3) // a program has addresses of its own
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	var pools []redis.Pool
	for _, addr := range cluster.Addrs() {
		client := &redigolib.Pool{Dial: func() (redigolib.Conn, error) { return redigolib.Dial("tcp", addr) }}
		defer func() { _ = client.Close() }()
		pools = append(pools, redigo.NewPool(client))
	}

	rs := redsync.New(pools...)
	defer func() { _ = rs.Close() }() // this is new, and may be left out
	mutex := rs.NewMutex("my-global-mutex")
	if err := mutex.Lock(); err != nil {
		panic(err)
	}
	fmt.Println("holding", mutex.Name())
	if ok, err := mutex.Unlock(); !ok || err != nil {
		panic("unlock failed")
	}
	// Output: holding my-global-mutex
}
