package redlock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// Renew restarts the TTL on a quorum of nodes. Concurrent calls share one
// renewal.
//
// It returns ErrLost if the lock's deadline has passed, without sending
// anything, or if the nodes say that the keys are gone or taken; ErrReleased
// after Release; ErrNoQuorum if too few nodes answered: the lock then stays
// what it was, with the deadline it had. If ctx ends first its error is
// returned, and the renewal goes on in the background.
func (k *Lock) Renew(ctx context.Context) error {
	if !k.locker.enter() {
		return ErrClosed
	}
	defer k.locker.calls.Done()
	if ended := contextError(ctx); ended != nil {
		return k.locker.nothingSent("renew", k.names, ended)
	}

	k.mu.Lock()
	end := k.expireLocked()
	err := k.ended
	r := k.renewal
	first := err == nil && r == nil
	if first {
		r = k.newRenewalLocked()
	}
	k.mu.Unlock()
	end.tell()
	if err != nil {
		return err
	}
	if first {
		r.send()
	}
	return r.wait(ctx)
}

// wait returns the outcome, or why it was not waited for.
func (r *renewal) wait(ctx context.Context) error {
	if r.round.Wait(ctx, r.locker.closing) != quorum.Undecided {
		if r.lock.config.ways.Thorough {
			r.hearOut(ctx, foreign.Thoroughness(r.lock.ttl))
		}
		return r.err
	}
	if r.locker.isClosed() {
		return ErrClosed
	}
	failed := quorumError(&r.poll)
	failed.ended = contextError(ctx)
	return failed
}

// renewal is the poll of one renewal.
type renewal struct {
	poll[scripts.Hold]
	lock *Lock
	err  error // set before the round's Wait returns
	// resumes is set before it is sent if the renewal takes a lock over. It does
	// not refill by itself: the Resume may fail yet, and then what is on its way
	// to a node could outlive the lock of the one who holds it.
	resumes bool
}

// send hides the poll's: no renewal may follow the release that ended it. A
// renewal can be settled, and the next one begun, before it has been sent to
// the last nodes; the release waits for all of them.
func (r *renewal) send() {
	defer r.lock.sending.Done()
	r.poll.send()
}

func (k *Lock) newRenewalLocked() *renewal {
	r := &renewal{lock: k, poll: poll[scripts.Hold]{
		locker: k.locker,
		op:     "renew",
		names:  k.names,
		claim:  &k.claim,
		script: scripts.Renew(k.keys, k.token, k.ttl),
		read:   readHold,
	}}
	r.heard = r.clear
	r.round.Settled = r.settled
	r.round.Straggler = r.straggler
	r.round.Init(len(k.locker.pools), quorum.Certain)
	k.renewal = r
	k.sending.Add(1)
	return r
}

// clear ends the doubt about a node that still holds the keys: there is at
// most one command in doubt, and it is what has set them.
func (r *renewal) clear(node int, _ pool.Result, vote quorum.Vote) {
	if vote == quorum.Granted {
		r.claim.doubt.And(^bit(node))
	}
}

func readHold(reply any) (quorum.Vote, scripts.Hold, error) {
	hold, err := scripts.ParseRenew(reply)
	switch {
	case err != nil:
		return quorum.Failed, hold, err
	case hold == scripts.Ours:
		return quorum.Granted, hold, nil
	case hold == scripts.Others:
		return quorum.Refused, hold, errOther
	}
	return quorum.Refused, hold, errMissing
}

// settled puts the verdict into effect. An ended lock stays ended, whatever
// the nodes say: whoever watched it has been told.
func (r *renewal) settled(verdict quorum.Verdict, tally quorum.Tally) {
	k := r.lock
	k.mu.Lock()
	k.renewal = nil
	// An answer that comes after the deadline is too late, even if a quorum
	// still held the keys: Validity has been 0.
	end := k.expireLocked()
	switch {
	case k.ended != nil:
		r.err = k.ended
	case verdict == quorum.Won:
		k.failure = nil
		k.extendLocked(r.began)
		end = k.expireLocked()
		r.err = k.ended
	case tally.Denied():
		end = k.endLocked(r.loss())
		r.err = k.ended
	default:
		// Nothing is known to be lost: the deadline stands, and until then
		// there is time to try again.
		k.failure = quorumError(&r.poll)
		r.err = k.failure.with(ErrNoQuorum)
		k.renewAt = k.locker.clock.Elapsed() + k.ttl/retriesPerTTL + rand.N(k.ttl/retriesPerTTL)
	}
	k.armLocked()
	err := k.ended
	observed, left := k.tellsLocked(), time.Duration(0)
	if err == nil {
		left = max(k.leftLocked(), 0)
	}
	k.mu.Unlock()
	if observed {
		k.locker.witness.tell(Renewed{Names: k.names, Took: r.elapsed(), Validity: left, Votes: r.votes(), Err: r.err})
		k.telling.Done()
	}
	end.tell()
	if err == nil && verdict == quorum.Won {
		k.announce(toldRenewed)
		r.refillAll()
	}
}

// resumed is settled for a renewal that takes a lock over. Nobody has the lock
// yet: no deadline has been shown to anybody, nobody is to be told of anything,
// and a Resume that fails must leave nothing behind that renews.
func (r *renewal) resumed(verdict quorum.Verdict, tally quorum.Tally) {
	k := r.lock
	k.mu.Lock()
	k.renewal = nil
	switch {
	case verdict == quorum.Won:
		k.extendLocked(r.began)
	case tally.Denied():
		r.err = r.loss()
	default:
		r.err = quorumError(&r.poll).with(ErrNoQuorum)
	}
	k.mu.Unlock()
	if r.err == nil {
		k.announce(toldRenewed)
	}
}

// loss says that a majority of the nodes no longer has the keys.
func (r *renewal) loss() error {
	kind := r.reason()
	return &lossError{names: r.names, kind: kind, reason: string(kind), cause: quorumError(&r.poll).with(ErrLost)}
}

// retriesPerTTL is how many renewals that fail at once fit into a TTL, at most;
// half as many do at least.
const retriesPerTTL = 40

// reason says what a majority of refusals amounts to.
func (r *renewal) reason() LossReason {
	for _, ballot := range r.round.Ballots() {
		if ballot.Vote == quorum.Refused && ballot.Reply == scripts.Others {
			return LossStolen
		}
	}
	return LossDeleted
}

// straggler is a vote that came after the verdict.
func (r *renewal) straggler(node int, ballot quorum.Ballot[scripts.Hold]) {
	if verdict, _ := r.round.Count(); verdict == quorum.Won && !r.resumes {
		r.refill(node, ballot)
	}
}

func (r *renewal) refillAll() {
	for node, ballot := range r.round.Ballots() {
		r.refill(node, ballot)
	}
}

// refill gives the keys back to a node that has lost them, now that a quorum
// has renewed. It counts for nothing: the next renewal will find it or not.
//
// A node that may still execute an older command is left alone: the release
// could not tell any more which of the two it has undone.
func (r *renewal) refill(node int, ballot quorum.Ballot[scripts.Hold]) {
	k := r.lock
	if ballot.Vote != quorum.Refused || ballot.Reply != scripts.Missing ||
		!k.config.refill || k.doubt.Load()&bit(node) != 0 {
		return
	}
	if !k.locker.enter() {
		return
	}
	defer k.locker.calls.Done()
	now := k.locker.clock.Elapsed()
	rest := (r.began + k.ttl - now).Truncate(time.Millisecond)
	if rest < minTTL || k.Err() != nil {
		return
	}
	k.clean.And(^bit(node))
	k.locker.pools[node].Start(&pool.Call{
		Script: scripts.Refill(k.keys, k.token, rest, k.keptNumber()),
		To:     (*refill)(&k.claim),
		Node:   node,
		Began:  now,
	})
}

// refill receives what a node says to being refilled.
type refill claim

// Deliver notes that the node may yet execute it. Otherwise what was known of
// the node has not changed: one that has lost one key of several has the others.
func (c *refill) Deliver(node int, result pool.Result) {
	if result.Sent == pool.Maybe {
		c.doubt.Or(bit(node))
	}
}

func (c *refill) Wanted() bool { return !c.unwanted.Load() }
