package redlocktest_test

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/redlocktest"
)

// A cluster of three, of which one node is down.
func Example() {
	cluster, err := redlocktest.New(3) // in a test: redlocktest.Start(t, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	cluster.Node(1).Stop()
	for i, addr := range cluster.Addrs() {
		conn, err := redis.Dial("tcp", addr)
		if err != nil {
			fmt.Printf("node %d is down\n", i)
			continue
		}
		_, _ = conn.Do("SET", "lock", "token", "NX", "PX", time.Minute.Milliseconds())
		_ = conn.Close()
	}
	fmt.Println("held on", cluster.Holders("lock")["token"], "of", cluster.Len())

	// Output:
	// node 1 is down
	// held on 2 of 3
}
