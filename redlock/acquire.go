package redlock

import (
	"context"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// attempt tries once to get the lock. It is the algorithm of the Redis page
// "Distributed Locks with Redis":
//
//  1. Read the clock.
//  2. Ask all nodes to set the keys to a new token, if they are free, with an
//     expiry. All at once: a node that hangs costs nothing once the rest have
//     answered.
//  3. The lock is ours if a quorum granted, and the time that took leaves
//     enough of the TTL after the allowance for drift.
//  4. Its validity is what is left.
//  5. Otherwise undo it on every node that may have granted.
func (l *Locker) attempt(ctx context.Context, t *target) (*Lock, error) {
	k := l.newLock(t)
	p := l.newAcquisition(k)

	p.send()
	verdict := p.wait(ctx, t)
	k.hold(p.began)

	// A caller that has given up gets no lock, even if it arrived in the same
	// moment: they may not look at the result any more, and undoing is safe.
	ended := contextError(ctx)
	if verdict == quorum.Won && ended == nil && k.left() >= max(t.minValidity, 1) {
		return k, nil
	}
	err := p.failure(verdict, ended)
	l.rollback(&k.claim, verdict != quorum.Lost)
	return nil, err
}

// acquisition is the poll of an attempt.
type acquisition struct{ poll[scripts.Acquired] }

func (l *Locker) newAcquisition(k *Lock) *acquisition {
	p := &acquisition{poll[scripts.Acquired]{
		locker: l,
		op:     "acquire",
		names:  k.names,
		claim:  &k.claim,
		script: scripts.Acquire(k.keys, k.token, k.ttl, scripts.Fencing{}),
	}}
	p.read = readAcquired(len(k.keys))
	p.voted = k.note
	p.round.Init(len(l.pools), quorum.Early)
	return p
}

func readAcquired(keys int) func(any) (quorum.Vote, scripts.Acquired, error) {
	return func(reply any) (quorum.Vote, scripts.Acquired, error) {
		acquired, err := scripts.ParseAcquire(reply, keys)
		switch {
		case err != nil:
			return quorum.Failed, acquired, err
		case acquired.Granted:
			return quorum.Granted, acquired, nil
		}
		return quorum.Refused, acquired, nil
	}
}

// wait returns the verdict. If the TTL is so short that the lease is over
// before the node timeout, there is no point in waiting for the rest.
func (p *acquisition) wait(ctx context.Context, t *target) quorum.Verdict {
	if useful := clock.Deadline(0, t.ttl, t.driftFactor) - t.minValidity; useful < p.locker.timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, useful)
		defer cancel()
	}
	return p.round.Wait(ctx, p.locker.closing)
}

// failure says why the attempt failed.
func (p *acquisition) failure(verdict quorum.Verdict, ended error) *QuorumError {
	_, tally := p.round.Count()
	err := quorumError(&p.poll)
	err.ended = ended
	switch {
	case ended != nil:
		// The votes so far prove nothing.
	case p.locker.isClosed():
		err.outcome = ErrClosed
	case verdict == quorum.Won:
		err.outcome, err.detail = ErrNoQuorum, "a quorum granted, but too late"
	case verdict == quorum.Undecided:
		err.outcome, err.detail = ErrNoQuorum, "the TTL was over before a quorum answered"
	case tally.Unheard():
		err.outcome = ErrNoQuorum
	default:
		err.outcome = ErrTaken
	}
	held := make([]bool, len(p.names))
	for _, ballot := range p.round.Ballots() {
		err.wait = max(err.wait, ballot.Reply.Wait)
		for _, i := range ballot.Reply.Held {
			held[i] = true
		}
	}
	for i, name := range p.names {
		if held[i] {
			err.Held = append(err.Held, name)
		}
	}
	return err
}

// rollback undoes an attempt on every node that may have granted it. It does
// not wait, and the caller's context has no part in it: what a cancelled
// attempt left must go, too.
//
// The nodes announce it only if others may have taken the votes for a held
// lock; contenders that split the votes know to try again by themselves.
func (l *Locker) rollback(c *claim, announce bool) {
	c.unwanted.Store(true)
	clean := c.clean.Load()
	call := scripts.Release(c.keys, c.token, announce)
	for node := range l.pools {
		if clean&bit(node) == 0 {
			l.reclaims.undo(c, node, call)
		}
	}
}

// note keeps account of what a node may have of this claim, after a command
// that sets keys.
func (c *claim) note(node int, result pool.Result, vote quorum.Vote) {
	switch {
	case result.Sent == pool.Maybe:
		c.doubt.Or(bit(node))
	case result.Sent == pool.Never, vote == quorum.Refused:
		c.clean.Or(bit(node))
	}
}
