package redlock

import (
	"context"
	"sync"

	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// survey asks nodes and wants all the answers, where a poll stops at the one
// that decides. It changes nothing that would have to be undone, so it may be
// given up at any time.
type survey struct {
	done chan struct{} // closed with the last answer

	mu      sync.Mutex // guards what follows
	answers []pool.Result
	out     int
}

// survey returns every node's answer to its question; a nil question is not
// asked. It waits for as long as a node may take to answer. It returns ErrClosed
// if the Locker is closed, and the context's error if ctx ends.
func (l *Locker) survey(ctx context.Context, question func(node int) *scripts.Call) ([]pool.Result, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.calls.Done()
	if ended := contextError(ctx); ended != nil {
		return nil, ended
	}
	s := &survey{
		done:    make(chan struct{}),
		answers: make([]pool.Result, len(l.pools)),
		out:     1, // us, until everybody has been asked
	}
	began := l.clock.Elapsed()
	for node, p := range l.pools {
		if script := question(node); script != nil {
			s.mu.Lock()
			s.out++
			s.mu.Unlock()
			p.Start(&pool.Call{Script: script, To: s, Node: node, Began: began}) //nolint:contextcheck // the connection outlives the question
		}
	}
	s.mu.Lock()
	s.answeredLocked()
	s.mu.Unlock()
	select {
	case <-s.done:
		return s.answers, nil
	case <-ctx.Done():
		return nil, contextError(ctx)
	case <-l.closing:
		return nil, ErrClosed
	}
}

// Deliver takes a node's answer.
func (s *survey) Deliver(node int, result pool.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[node] = result
	s.answeredLocked()
}

func (s *survey) answeredLocked() {
	s.out--
	if s.out == 0 {
		close(s.done)
	}
}

// Wanted is for calls that grant; these do not.
func (s *survey) Wanted() bool { return true }

// everybody puts the same question to all nodes.
func everybody(call *scripts.Call) func(int) *scripts.Call {
	return func(int) *scripts.Call { return call }
}
