package redlock

import (
	"context"
	"slices"
)

// Resume takes over a lock that is held under a token: a worker that goes on
// after its parent has ended, a job that a web request has handed its lock to.
// It proves the hold by renewing on a quorum, which also begins the TTL anew.
// Whoever held the lock before must not use it any more, and need not release
// it. (A vote of the first process that is still on its way to a slow node can
// arrive after the new holder's release; it then stays on that node until its
// TTL ends.)
//
// With [WithFencing] the new holder gets a number of its own, larger than that
// of the one before.
//
// It returns ErrLost if the nodes say that the keys are gone or held under
// another token, ErrNoQuorum if too few answered, and otherwise what Acquire
// does. When it fails, nothing is undone: the lock stays with whoever holds it.
func (l *Locker) Resume(ctx context.Context, names []string, token string, opts ...LockOption) (*Lock, error) {
	t, err := l.begin(ctx, "renew", slices.Clone(names), opts)
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	if err := l.twins.check(l.pools); err != nil {
		return nil, err
	}
	if err := checkToken(token); err != nil {
		return nil, err
	}
	began := l.witness.clock(l)
	k, err := l.takeOver(ctx, t, token)
	return l.handOut(k, t.names, began, err) //nolint:contextcheck // nobody waits for announcements
}

func (l *Locker) takeOver(ctx context.Context, t *target, token string) (*Lock, error) {
	k := l.newLock(t, token)
	k.hold(l.clock.Elapsed()) // nobody sees the lock before the renewal has proved it
	k.mu.Lock()
	r := k.newRenewalLocked()
	k.mu.Unlock()
	r.send()
	if err := r.wait(ctx); err != nil {
		// The renewal may still come to a quorum, but it must not refill a node
		// then: whoever holds the lock may have released it meanwhile.
		k.unwanted.Store(true)
		return nil, err
	}
	if t.fencing {
		if err := k.numberAgain(ctx); err != nil {
			return nil, err
		}
	}
	k.keep()
	return k, nil
}

// numberAgain draws a fencing number for a lock that is held: the keys grant
// their token to itself, and raise the counters.
func (k *Lock) numberAgain(ctx context.Context) error {
	p := k.locker.newAcquisition(k)
	p.again = true
	verdict := p.canvass(ctx, together)
	failed := p.failure(ctx, verdict)
	if failed == nil {
		failed = k.fence(ctx, p)
	}
	if failed == nil {
		failed = k.usable(ctx, p)
	}
	if failed != nil {
		return failed
	}
	return nil
}
