package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// A floor does what cannot be saved: it writes the commands that we send to one connection per node and counts the
// replies, and there is nothing else: no tokens, no clock, no errors that would be survived, nobody who could use it.
//
// It has two forms. In loop, one loop stands for all goroutines: it writes the acquires of all of them in one piece
// to each node, awaits a quorum of replies to each, and does the same with the releases. In each, goroutines share the
// connections, as they do in a library.
type floor struct {
	nodes  []*floorNode
	quorum int32

	acquires, releases []request // by goroutine

	// For loop: the votes for each call, in the order in which the calls were written. Every call gets a vote of
	// each node in the end, and so a slot can be used again when a straggler is not that far behind.
	votes   [1 << 16]atomic.Int32
	decided atomic.Int64
	target  atomic.Int64
	done    chan struct{}
	failed  chan error
	readers sync.WaitGroup
}

type request struct {
	name string
	args []any
}

type floorNode struct {
	conn    redis.Conn
	mu      sync.Mutex // guards the writing side of conn, and the order of pending
	waiting atomic.Int32
	pending chan *floorCall // nil for loop
}

type floorCall struct {
	votes atomic.Int32
	done  chan struct{}
}

func openFloor(addrs []string, goroutines int, shared bool) (_ *floor, err error) {
	f := &floor{quorum: int32(len(addrs)/2 + 1), done: make(chan struct{}, 1), failed: make(chan error, len(addrs))}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	hashes := map[string]string{}
	for _, addr := range addrs {
		conn, err := redis.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		n := &floorNode{conn: conn}
		if shared {
			n.pending = make(chan *floorCall, 1<<16)
		}
		f.nodes = append(f.nodes, n)
		for _, s := range scripts.All() {
			if hashes[s.Name()], err = redis.String(conn.Do("SCRIPT", "LOAD", s.Source())); err != nil {
				return nil, err
			}
		}
	}
	const token = "0123456789abcdefghijkl.benchmark:12345" // as long as ours
	for g := range goroutines {
		keys := []string{fmt.Sprintf("bench-floor-%d", g)}
		acquire := scripts.Acquire(keys, token, lockTTL, scripts.Fencing{}).PlainFirst()
		release := scripts.Release(keys, token, true)
		f.acquires = append(f.acquires, request{"SET", acquire.AppendSet(nil)})
		f.releases = append(f.releases, request{"EVALSHA", append([]any{hashes["release"]}, release.Args...)})
	}
	for _, n := range f.nodes {
		f.readers.Go(func() { f.read(n) })
	}
	return f, nil
}

// read counts the replies of one node until its connection is closed.
func (f *floor) read(n *floorNode) {
	for i := 0; ; i++ {
		if _, err := n.conn.Receive(); err != nil {
			f.failed <- err
			return
		}
		if n.pending != nil {
			call := <-n.pending
			if call.votes.Add(1) == f.quorum {
				call.done <- struct{}{}
			}
			continue
		}
		if f.votes[i%len(f.votes)].Add(1)%int32(len(f.nodes)) == f.quorum%int32(len(f.nodes)) &&
			f.decided.Add(1) == f.target.Load() {
			f.done <- struct{}{}
		}
	}
}

// loop makes pairs in batches of goroutines until the time is over.
func (f *floor) loop(goroutines int, d time.Duration) (tally, error) {
	t := tally{}
	start := time.Now()
	for time.Since(start) < d {
		for _, calls := range [][]request{f.acquires[:goroutines], f.releases[:goroutines]} {
			f.target.Add(int64(len(calls)))
			for _, n := range f.nodes {
				for _, c := range calls {
					if err := n.conn.Send(c.name, c.args...); err != nil {
						return t, err
					}
				}
				if err := n.conn.Flush(); err != nil {
					return t, err
				}
			}
			select {
			case <-f.done:
			case err := <-f.failed:
				return t, err
			}
		}
		t.ops += goroutines
	}
	t.elapsed = time.Since(start)
	return t, nil
}

// each makes pairs by goroutines of their own.
func (f *floor) each(goroutines int, d time.Duration) (tally, error) {
	return inParallel(goroutines, d, func(g int) error {
		for _, c := range []request{f.acquires[g], f.releases[g]} {
			call := &floorCall{done: make(chan struct{}, 1)}
			for _, n := range f.nodes {
				if err := n.send(call, c); err != nil {
					return err
				}
			}
			<-call.done
		}
		return nil
	}), nil
}

// send writes a call; it leaves the flushing to whoever waits behind it, if somebody does.
func (n *floorNode) send(call *floorCall, c request) error {
	n.waiting.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	left := n.waiting.Add(-1)
	n.pending <- call
	if err := n.conn.Send(c.name, c.args...); err != nil {
		return err
	}
	if left > 0 {
		return nil
	}
	return n.conn.Flush()
}

func (f *floor) close() error {
	var errs []error
	for _, n := range f.nodes {
		errs = append(errs, n.conn.Close())
	}
	f.readers.Wait()
	return errors.Join(errs...)
}
