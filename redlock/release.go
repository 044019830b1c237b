package redlock

import (
	"context"
	"time"

	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// Release gives the lock up: it ends the lock, and every context made from it,
// and then deletes the keys on all nodes. It returns when a quorum has
// answered; the rest is seen to in the background. Within the minimum hold
// ([WithMinHold]) the keys are not deleted; they expire when it is over.
//
// It is idempotent: later and concurrent calls wait for and return the result
// of the first. ctx bounds only the waiting: the keys are deleted even if it
// has ended already, and then its error is returned.
//
// It returns ErrLost if the lock had been lost before; what is left of it is
// deleted all the same. It returns ErrNoQuorum if too few nodes confirmed: the
// keys end with their TTL at the latest, which may be before the minimum hold
// is over. It returns ErrClosed, and sends nothing, if the [Locker] was closed
// before the lock was lost or released.
func (k *Lock) Release(ctx context.Context) error { return k.giveUp(ctx, k.config.minHold) }

// giveBack releases a lock that no caller has been given: others need not wait
// for its minimum hold. What comes of it is of no interest.
func (k *Lock) giveBack(ctx context.Context) { _ = k.giveUp(ctx, 0) }

func (k *Lock) giveUp(ctx context.Context, minHold time.Duration) error {
	if !k.locker.enter() {
		return k.givenUp(ctx)
	}
	defer k.locker.calls.Done()

	k.mu.Lock()
	end := k.expireLocked()
	r := k.releasing
	first := r == nil
	if first {
		r = k.newReleaseLocked(minHold)
		k.releasing = r
		// Before anything is sent: from here on no renewal begins, and no
		// command that sets a key goes out.
		k.unwanted.Store(true)
		if k.ended == nil {
			end = k.endLocked(ErrReleased)
		}
	}
	k.mu.Unlock()
	end.tell()
	defer k.telling.Wait() // of what happened before

	if first {
		k.sending.Wait() // does not block: nodes are not waited for
		k.locker.reclaims.expect(len(k.locker.pools))
		r.send()
	}
	return r.wait(ctx)
}

// givenUp returns what Release does once the Locker is closed: what had become
// of the lock.
func (k *Lock) givenUp(ctx context.Context) error {
	k.mu.Lock()
	end := k.expireLocked()
	r, lost := k.releasing, k.ended
	k.mu.Unlock()
	end.tell()
	switch {
	case r != nil:
		return r.wait(ctx)
	case lost != nil:
		return lost
	}
	return ErrClosed
}

// wait returns the outcome, or why it was not waited for.
func (r *release) wait(ctx context.Context) error {
	if r.round.Wait(ctx, nil) != quorum.Undecided {
		if r.lock.config.ways.Thorough {
			r.hearOut(ctx, foreign.Thoroughness(r.lock.ttl))
		}
		return r.err
	}
	failed := quorumError(&r.poll)
	failed.ended = contextError(ctx)
	return failed
}

// release is the poll of the release.
type release struct {
	poll[int]
	lock *Lock
	rest time.Duration // what is left of the minimum hold
	lost error         // why the lock had ended before
	err  error         // set before the round's Wait returns

	// For the observer, if told is set: the lock when Release was called.
	told       bool
	held, left time.Duration
}

func (k *Lock) newReleaseLocked(minHold time.Duration) *release {
	r := &release{lock: k, lost: k.ended, poll: poll[int]{
		locker: k.locker,
		op:     "release",
		names:  k.names,
		claim:  &k.claim,
		script: scripts.Release(k.keys, k.token, true),
		read:   readDeleted(len(k.keys)),
	}}
	// A lock that was lost is not held on to: others may have it by now.
	if rest := k.acquired + minHold - k.locker.clock.Elapsed(); minHold > 0 && rest > 0 && k.ended == nil {
		r.rest = rest
		r.script = scripts.Linger(k.keys, k.token, rest)
	}
	if k.handed {
		r.told, r.held = true, k.locker.clock.Elapsed()-k.acquired
		if k.ended == nil {
			r.left = max(k.leftLocked(), 0)
		}
	}
	r.heard = r.reclaim
	r.round.Settled = r.settled
	r.round.Init(len(k.locker.pools), quorum.Certain)
	return r
}

func readDeleted(keys int) func(any) (quorum.Vote, int, error) {
	return func(reply any) (quorum.Vote, int, error) {
		deleted, err := scripts.ParseRelease(reply, keys)
		switch {
		case err != nil:
			return quorum.Failed, deleted, err
		case deleted == keys:
			return quorum.Granted, deleted, nil
		}
		return quorum.Refused, deleted, errMissing
	}
}

// reclaim sees to it that a node where the release failed is tried again. One
// that could not be told to let the keys end is told to delete them when the
// time has come.
func (r *release) reclaim(node int, result pool.Result, _ quorum.Vote) {
	defer r.locker.reclaims.received()
	if r.rest == 0 {
		r.locker.reclaims.redo(r.claim, node, r.script, result)
	} else if !r.claim.undone(node, result) {
		r.locker.reclaims.undoLater(r.claim, node, scripts.Release(r.claim.keys, r.claim.token, true), r.rest)
	}
}

func (r *release) settled(verdict quorum.Verdict, tally quorum.Tally) {
	switch {
	case r.lost != nil:
		r.err = r.lost
	case verdict == quorum.Won:
	case tally.Denied():
		failed := quorumError(&r.poll)
		failed.outcome, failed.detail = ErrLost, "the keys were gone or taken"
		r.err = failed
	case r.rest == 0 && tally.Granted+tally.Refused >= tally.Quorum():
		// A quorum is free of the token, and nothing proves that it was not
		// ours until now: nodes that never held it count among the refusals.
		// (Of a minimum hold only those that keep the keys are proof.)
	default:
		failed := quorumError(&r.poll)
		failed.outcome = ErrNoQuorum
		r.err = failed
	}
	if r.told {
		r.locker.witness.tell(Released{Names: r.names, Held: r.held, Validity: r.left, Took: r.elapsed(), Votes: r.votes(), Err: r.err})
	}
}
