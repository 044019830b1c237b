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

// drawToken returns the token of an attempt: a new one, or the one that a
// compat package wants.
func (l *Locker) drawToken(t *target) (string, error) {
	if t.ways.Token == nil {
		return newToken(l.owner), nil
	}
	token, err := t.ways.Token()
	if err != nil {
		return "", err
	}
	return token, checkToken(token)
}

// acquisition returns the command of an attempt. A token that somebody else has
// chosen may be somebody else's, too, and must not be granted what they hold.
func (k *Lock) acquisition(fencing scripts.Fencing, how approach) *scripts.Call {
	acquire := scripts.Acquire
	if k.config.ways.Token != nil {
		acquire = scripts.AcquireNew
	}
	call := acquire(k.keys, k.token, k.ttl, fencing)
	// A refusal by the plain SET is followed by the script: there must be time.
	if !how.repeats && k.useful() >= 2*k.locker.timeout {
		call.PlainFirst()
	}
	return call
}

// thoroughness is how long to wait for votes that change nothing: short beside
// the TTL, too.
func (k *Lock) thoroughness() time.Duration { return min(lastWords, k.ttl/20) }
