package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

func init() {
	foreign.Locking = func(w foreign.Ways) any {
		return lockOption(func(c *lockConfig) { c.ways = w })
	}
	foreign.AnyNumber = func() any {
		return option(func(c *config) { c.anyNumber = true })
	}
	foreign.Refused = func(err error) bool {
		return errors.Is(err, errHeld) || errors.Is(err, errMissing) || errors.Is(err, errOther) || errors.Is(err, errPassed)
	}
	foreign.Unheard = func(err error) bool { return errors.Is(err, errPending) }
	foreign.Discard = func(locker any, name, token string, ttl time.Duration) {
		locker.(*Locker).discard(name, token, ttl)
	}
	foreign.Look = func(ctx context.Context, locker any, name string) (<-chan foreign.Sight, error) {
		return locker.(*Locker).look(ctx, name)
	}
}

// discard undoes whatever the nodes have under a token, as if it were what is
// left of an attempt. None of its commands set a key, so nothing is in doubt.
func (l *Locker) discard(name, token string, ttl time.Duration) {
	if checkToken(token) != nil || !l.enter() {
		return
	}
	defer l.calls.Done()
	l.rollback(&claim{keys: []string{l.keyPrefix + name}, token: token, ttl: ttl}, true)
}

// sights takes what nodes say, for somebody who may have heard enough before
// the last of them has answered.
type sights chan foreign.Sight

// look asks all nodes what they have under a name.
func (l *Locker) look(ctx context.Context, name string) (<-chan foreign.Sight, error) {
	t, err := l.begin(ctx, "inspect", []string{name}, nil)
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	seen := make(sights, len(l.pools))
	began := l.clock.Elapsed()
	script := scripts.Inspect(t.keys)
	for node, p := range l.pools {
		p.Start(&pool.Call{Script: script, To: seen, Node: node, Began: began}) //nolint:contextcheck // the connection outlives the question
	}
	return seen, nil
}

// Deliver takes a node's answer.
func (s sights) Deliver(node int, result pool.Result) {
	seen, err := readInspected(result, 1)
	if err == nil {
		err = seen[0].Err
	}
	if err != nil {
		s <- foreign.Sight{Node: node, Err: err}
		return
	}
	s <- foreign.Sight{Node: node, Token: seen[0].Value}
}

// Wanted is for calls that grant; a look does not.
func (s sights) Wanted() bool { return true }
