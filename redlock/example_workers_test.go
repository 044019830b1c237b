package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/redquorum/go-redlock/redlock"
)

// tenants are what the workers work on: each may be touched by one worker at a
// time, and has to be touched once. done stands for a mark in a database.
type tenants struct {
	mu   sync.Mutex
	done map[string]int
}

func (s *tenants) isDone(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[name] > 0
}

func (s *tenants) work(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[name]++
}

// worker goes through the names, each in an order of its own so that workers
// seldom meet, until all are done. It never waits: what another works on it
// leaves for the next round.
func worker(ctx context.Context, locker *redlock.Locker, s *tenants, names []string) error {
	for left := len(names); left > 0; {
		left = 0
		for _, i := range rand.Perm(len(names)) {
			if s.isDone(names[i]) {
				continue
			}
			left++
			lock, err := locker.TryAcquire(ctx, "tenant:"+names[i])
			if errors.Is(err, redlock.ErrTaken) {
				continue
			}
			if err != nil {
				return err
			}
			if !s.isDone(names[i]) { // look again: another may have been at it until just now
				s.work(names[i])
			}
			if err := lock.Release(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// A pool of workers over many names, in as many processes as you like.
func Example_workerPool() {
	nodes, stop := addrs()
	defer stop()
	s := &tenants{done: map[string]int{}}
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("tenant ", i))
	}

	var workers sync.WaitGroup
	for range 2 { // processes, with one Locker each
		locker, err := redlock.New(nodes)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = locker.Close() }()
		for range 3 {
			workers.Go(func() {
				if err := worker(context.Background(), locker, s, names); err != nil {
					fmt.Println(err)
				}
			})
		}
	}
	workers.Wait()

	once := 0
	for _, times := range s.done {
		if times == 1 {
			once++
		}
	}
	fmt.Println(once, "of", len(names), "were done exactly once")
	// Output: 20 of 20 were done exactly once
}
