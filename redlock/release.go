package redlock

import (
	"context"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// Release gives the lock up: it ends the lock, and every context made from it,
// and then deletes the keys on all nodes. It returns when a quorum has
// answered; the rest is seen to in the background. Before [WithMinHold] is over
// the keys are not deleted but made to end with it.
//
// It is idempotent: later and concurrent calls wait for and return the result
// of the first. ctx bounds only the waiting: the keys are deleted even if it
// has ended already, and then its error is returned.
//
// It returns ErrLost if the lock had been lost before; what is left of it is
// deleted all the same. It returns ErrNoQuorum if too few nodes confirmed; the
// keys end with their TTL at the latest.
func (k *Lock) Release(ctx context.Context) error {
	if !k.locker.enter() {
		return ErrClosed
	}
	defer k.locker.calls.Done()

	k.mu.Lock()
	end := k.expireLocked()
	r := k.releasing
	first := r == nil
	if first {
		r = k.newReleaseLocked()
		k.releasing = r
		// Before anything is sent: from here on no renewal begins, and no
		// command that sets a key goes out.
		k.unwanted.Store(true)
		if k.ended == nil {
			end = k.endLocked(ErrReleased)
		}
	}
	sent := k.sent
	k.mu.Unlock()
	end.tell()
	defer k.telling.Wait() // of what happened before

	if first {
		if sent != nil {
			<-sent // sending does not block
		}
		k.locker.reclaims.expect(len(k.locker.pools))
		r.send()
	}
	if r.round.Wait(ctx, nil) != quorum.Undecided {
		if k.config.ways.Thorough {
			r.hearOut(ctx, k.thoroughness())
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
	rest time.Duration // what is left of the minimum hold
	lost error         // why the lock had ended before
	err  error         // set before the round's Wait returns

	// For the observer, if told is set: the lock when Release was called.
	told       bool
	held, left time.Duration
}

func (k *Lock) newReleaseLocked() *release {
	r := &release{lost: k.ended, poll: poll[int]{
		locker: k.locker,
		op:     "release",
		names:  k.names,
		claim:  &k.claim,
		script: scripts.Release(k.keys, k.token, true),
		read:   readDeleted(len(k.keys)),
	}}
	// A lock that was lost is not held on to: others may have it by now.
	if k.config.minHold > 0 && k.ended == nil {
		if rest := k.acquired + k.config.minHold - k.locker.clock.Elapsed(); rest > 0 {
			r.rest = rest
			r.script = scripts.Linger(k.keys, k.token, rest)
		}
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
	case tally.Granted+tally.Refused >= tally.Quorum():
		// A quorum is free of the token, and nothing proves that it was not
		// ours until now: nodes that never held it count among the refusals.
	default:
		failed := quorumError(&r.poll)
		failed.outcome = ErrNoQuorum
		r.err = failed
	}
	if r.told {
		r.locker.witness.tell(Released{Names: r.names, Held: r.held, Validity: r.left, Took: r.elapsed(), Votes: r.votes(), Err: r.err})
	}
}
