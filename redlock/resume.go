package redlock

import (
	"context"
	"slices"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// Resume takes over a lock that is held under a token: a worker that goes on
// after its parent has ended, a job that a web request has handed its lock to.
// It proves the hold by renewing on a quorum, which also restarts the TTL.
// Whoever held the lock before must not use it any more, and need not release
// it; nor must they renew it, for that would keep others out after the new
// holder is gone. So hand over a lock that was acquired without [WithAutoRenew],
// and not from within [Locker.Do], unless the process that hands over ends. (A
// vote of the first process that is still on its way to a slow node can arrive
// after the new holder's release; it then stays on that node until its TTL
// ends.)
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
	k := l.newLock(t, token)
	err = k.takeOver(ctx)
	return l.handOut(k, t.names, began, err) //nolint:contextcheck // nobody waits for announcements
}

// takeOver proves that the keys hold the lock's token. Nobody has the lock yet.
func (k *Lock) takeOver(ctx context.Context) error {
	k.hold(k.locker.clock.Elapsed()) // nobody sees the lock before the renewal has proved it
	k.mu.Lock()
	r := k.newRenewalLocked()
	r.resumes = true
	r.round.Settled = r.resumed
	k.mu.Unlock()
	r.send()
	err := r.wait(ctx)
	if err == nil {
		err = k.proved(ctx, r)
	}
	if err == nil {
		// Once more: a process that has just started knew none of the nodes.
		err = k.locker.twins.check(k.locker.pools)
	}
	if err != nil {
		// The renewal may still come to a quorum, but neither it nor anything
		// else of ours must set a key then: whoever holds the lock may have
		// released it meanwhile.
		k.unwanted.Store(true)
		return err
	}
	k.keep()
	r.refillAll() //nolint:contextcheck // a connection outlives whoever has it opened
	return nil
}

// proved returns why a lock that a quorum has renewed is not handed out, or nil.
// With fencing it first needs a number of its own.
func (k *Lock) proved(ctx context.Context, r *renewal) error {
	var failed *QuorumError
	if k.config.fencing {
		failed = k.numberAgain(ctx)
	} else {
		failed = usable(ctx, k, &r.poll)
	}
	if failed == nil {
		return nil
	}
	return failed
}

// numberAgain draws a fencing number for a lock that is held: the keys grant
// their token to itself, and raise the counters.
func (k *Lock) numberAgain(ctx context.Context) *QuorumError {
	p := k.newAcquisition(scripts.AcquireAgain(k.keys, k.token, k.ttl, k.locker.fencing(k)), quorum.Certain)
	p.again = true
	p.begin()
	verdict := p.canvass(ctx, together)
	failed := p.judge(ctx, verdict)
	if failed == nil || failed.outcome != ErrTaken { //nolint:errorlint // it is one of ours
		return failed
	}
	// A node may hold a stray key of another client. The lock is lost only if so
	// many refuse that no quorum can have it.
	failed.outcome = ErrNoQuorum
	if _, tally := p.round.Count(); tally.Denied() {
		failed.outcome, failed.detail = ErrLost, "the keys were gone or taken"
	}
	return failed
}
