package redlock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// attempt tries once to get the lock. It is the algorithm of the Redis page
// "Distributed Locks with Redis":
//
//  1. Read the clock.
//  2. Ask all nodes to set the keys to a new token, if they are free, with an
//     expiry. All at once, unless contenders crowd (see approach): a node that
//     hangs costs nothing once the rest have answered.
//  3. The lock is ours if a quorum granted, and the time that took leaves
//     enough of the TTL after the allowance for drift.
//  4. Its validity is what is left. (With fencing, the number is settled within
//     it.)
//  5. Otherwise undo it on every node that may have granted.
func (l *Locker) attempt(ctx context.Context, t *target, how approach) (*Lock, error) {
	token, err := l.drawToken(t)
	if err != nil {
		return nil, err
	}
	k := l.newLock(t, token)
	p := k.newAcquisition(k.acquireCall(how), quorum.Early)

	p.begin()                       // 1
	verdict := p.canvass(ctx, how)  // 2
	k.hold(p.began)                 // the deadline that 4 goes by
	failed := p.judge(ctx, verdict) // 3 and 4
	p.told(failed)
	if failed == nil {
		k.keep()
		return k, nil
	}
	l.rollback(&k.claim, verdict != quorum.Lost) //nolint:contextcheck // 5: what ctx cancelled must be undone
	return nil, failed
}

// judge returns why the lock is not ours, or nil. What validity is left comes
// last: settling the fencing number takes some of it.
func (p *acquisition) judge(ctx context.Context, verdict quorum.Verdict) *QuorumError {
	failed := p.failure(ctx, verdict)
	if failed == nil && p.lock.config.fencing {
		failed = p.lock.fence(ctx, p)
	}
	if failed == nil {
		failed = usable(ctx, p.lock, &p.poll)
	}
	return failed
}

// acquireCall returns the command of an attempt. A token that somebody else has
// chosen may be somebody else's, too, and must not be granted what they hold.
func (k *Lock) acquireCall(how approach) *scripts.Call {
	acquire := scripts.Acquire
	if k.config.ways.Token != nil {
		acquire = scripts.AcquireNew
	}
	call := acquire(k.keys, k.token, k.ttl, k.locker.fencing(k))
	// A refusal by the plain SET is followed by the script: there must be time.
	if !how.repeats && k.useful() >= 2*k.locker.timeout {
		call.PlainFirst()
	}
	return call
}

// approach is the order in which an attempt asks the nodes. It has no part in
// safety.
//
// When a lock is released, everybody who waits for it hears so in the same
// moment. If all of them asked all nodes they would split the votes, again and
// again. So one node, the same for all, is asked first: whoever gets its vote
// finds the others free, and the rest have cost one command each. If it does
// not answer within patience the others are asked all the same; and an attempt
// that nothing was heard before never waits for one node.
type approach struct {
	leads    bool
	lead     int
	patience time.Duration
	// repeats says that an attempt has failed before. Then it is the script that
	// asks, which says with a refusal what a waiter must know.
	repeats bool
}

var together = approach{}

// acquisition is the poll of an attempt.
type acquisition struct {
	poll[scripts.Acquired]
	lock  *Lock
	again bool // the keys are ours: a node that was not asked may hold them
	first int  // the node to begin with

	lead     int           // the node that is asked first, or -1
	leadVote quorum.Vote   // before led is closed
	led      chan struct{} // closed when the lead has voted

	resisted atomic.Bool
	split    chan struct{} // closed when a quorum has answered, and not all have granted
	parted   atomic.Bool   // split is closed
}

func (k *Lock) newAcquisition(script *scripts.Call, rule quorum.Rule) *acquisition {
	l := k.locker
	p := &acquisition{lock: k, lead: -1, split: make(chan struct{}), poll: poll[scripts.Acquired]{
		locker: l,
		op:     "acquire",
		names:  k.names,
		claim:  &k.claim,
		script: script,
	}}
	if k.config.ways.Shuffle {
		p.first = rand.IntN(len(l.pools))
	}
	p.read = readPlain
	if !script.Plain {
		p.read = readAcquired(len(k.keys))
	}
	p.heard, p.waiter = p.note, p
	p.round.Init(len(l.pools), rule)
	return p
}

// useful is how long an attempt may take: a later outcome is too late.
func (k *Lock) useful() time.Duration {
	return clock.Deadline(0, k.ttl, k.config.driftFactor) - k.config.minValidity
}

// note keeps account of what the node may hold.
func (p *acquisition) note(node int, result pool.Result, vote quorum.Vote) {
	if !p.again || result.Sent == pool.Maybe {
		p.claim.note(node, result, vote)
	}
}

// signal wakes who waits for the vote. Not before the round has it: what it says
// of the holder's TTL would be missed.
func (p *acquisition) signal(node int, vote quorum.Vote) {
	if node == p.lead {
		p.leadVote = vote
		close(p.led)
	}
	if vote == quorum.Refused && !p.again { // keys of ours keep nobody out who might get them
		p.resisted.Store(true)
	}
	if !p.resisted.Load() {
		return
	}
	_, tally := p.round.Count()
	if tally.Granted+tally.Refused >= tally.Quorum() && p.parted.CompareAndSwap(false, true) {
		close(p.split)
	}
}

// canvass asks the nodes and returns the verdict.
func (p *acquisition) canvass(ctx context.Context, how approach) quorum.Verdict {
	if how.leads {
		if verdict, over := p.askLeading(ctx, how); over {
			return verdict
		}
	} else {
		p.askFrom(p.first)
	}
	verdict := p.wait(ctx)
	if p.lock.config.ways.Thorough {
		p.hearOut(ctx, foreign.Thoroughness(p.lock.ttl))
	}
	return verdict
}

// askLeading asks the leading node and, unless that is enough, the others.
func (p *acquisition) askLeading(ctx context.Context, how approach) (verdict quorum.Verdict, over bool) {
	p.lead, p.led = how.lead, make(chan struct{})
	p.ask(p.lead, p.began)
	voted := p.locker.await(ctx, p.led, how.patience)
	if voted && p.leadVote == quorum.Refused || ctx.Err() != nil || p.locker.isClosed() {
		p.claim.clean.Or(^bit(p.lead)) // nobody else was asked
		if voted {
			return quorum.Lost, true
		}
		return quorum.Undecided, true
	}
	// The lease is reckoned from the beginning, but the nodes that have not been
	// asked yet are not to blame for the time that this one took.
	now := p.locker.clock.Elapsed()
	for node := range p.calls {
		if node != p.lead {
			p.ask(node, now)
		}
	}
	return quorum.Undecided, false
}

// wait returns the verdict, or Undecided if waiting for the rest of the votes
// is pointless: because the TTL is so short that the lease is over before the
// node timeout, or because others have taken votes and the nodes that might
// still make up for it are much later than usual.
func (p *acquisition) wait(ctx context.Context) quorum.Verdict {
	if useful := p.lock.useful(); useful < p.locker.timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, useful)
		defer cancel()
	}
	closing := p.locker.closing
	select {
	case <-p.round.Decided():
	case <-p.split:
		// While this attempt waits for a node that hangs, its own votes keep
		// the other contenders out. (Where no quorum answers nobody gets in, and
		// it must be seen that this is an outage.)
		if !p.locker.await(ctx, p.round.Decided(), p.patience()) {
			return p.round.GiveUp()
		}
	case <-ctx.Done():
	case <-closing:
	}
	return p.round.Wait(ctx, closing)
}

// lateness is how many of a node's usual round trips a vote may take that
// others depend on.
const lateness = 4

// patience returns how long to wait for the votes that are still out.
func (p *acquisition) patience() time.Duration {
	longest := time.Duration(0)
	for node, ballot := range p.round.Ballots() {
		if ballot.Vote != quorum.Pending {
			continue
		}
		usual := p.locker.pools[node].RoundTrip()
		if usual == 0 {
			return p.locker.timeout
		}
		longest = max(longest, lateness*usual)
	}
	return longest + time.Millisecond
}

func readAcquired(keys int) func(any) (quorum.Vote, scripts.Acquired, error) {
	return func(reply any) (quorum.Vote, scripts.Acquired, error) {
		return acquiredVote(scripts.ParseAcquire(reply, keys))
	}
}

func readPlain(reply any) (quorum.Vote, scripts.Acquired, error) {
	return acquiredVote(scripts.ParsePlain(reply))
}

func acquiredVote(acquired scripts.Acquired, err error) (quorum.Vote, scripts.Acquired, error) {
	switch {
	case err != nil:
		return quorum.Failed, acquired, err
	case acquired.Granted:
		return quorum.Granted, acquired, nil
	}
	return quorum.Refused, acquired, errHeld
}

// lastWords is how long an attempt that has failed for want of answers, or
// perhaps has, waits for those still out. They tell an outage from contention,
// where one node refuses and others fail; and the error can say of each node
// what is wrong, when it matters most. Waiting is short beside an outage.
const lastWords = 25 * time.Millisecond

// failure returns why the votes are not enough, or nil if they are.
func (p *acquisition) failure(ctx context.Context, verdict quorum.Verdict) *QuorumError {
	if verdict == quorum.Won {
		return nil
	}
	_, tally := p.round.Count()
	if verdict == quorum.Lost && !tally.Denied() && (tally.Unheard() || tally.Doubtful()) {
		p.hearOut(ctx, lastWords)
		_, tally = p.round.Count()
	}
	unheard := verdict == quorum.Lost && tally.Unheard()
	err := quorumError(&p.poll)
	switch err.ended = contextError(ctx); {
	case err.ended != nil:
		// The votes so far prove nothing.
	case p.locker.isClosed():
		err.outcome = ErrClosed
	case verdict == quorum.Undecided && tally.Granted+tally.Refused < tally.Quorum():
		err.outcome, err.detail = ErrNoQuorum, "the TTL was over before a quorum answered"
	case unheard:
		err.outcome = ErrNoQuorum
	default:
		err.outcome = ErrTaken
	}
	held := make([]bool, len(p.names))
	var waits []time.Duration
	for _, ballot := range p.round.Ballots() {
		if ballot.Vote == quorum.Refused {
			waits = append(waits, ballot.Reply.Wait)
		}
		err.silent = err.silent || ballot.Reply.Silent
		for _, i := range ballot.Reply.Held {
			held[i] = true
		}
	}
	for i, name := range p.names {
		if held[i] {
			err.Held = append(err.Held, name)
		}
	}
	if len(waits) > 0 {
		// So many keys must end for a quorum to be free, if the nodes that have
		// not voted are. One that nobody undoes may last much longer.
		slices.Sort(waits)
		end := max(1, tally.Quorum()-tally.Granted-tally.Outstanding())
		err.wait = waits[min(end, len(waits))-1]
	}
	return err
}

// usable returns why a lock that a poll has won is not handed out, or nil.
func usable[R any](ctx context.Context, k *Lock, p *poll[R]) *QuorumError {
	// A caller that has given up gets no lock, even if it arrived in the same
	// moment: they may not look at the result any more, and undoing is safe.
	ended := contextError(ctx)
	if ended == nil && k.left() >= max(k.config.minValidity, 1) {
		return nil
	}
	err := quorumError(p)
	if err.ended = ended; ended == nil {
		err.outcome, err.detail = ErrNoQuorum, "a quorum granted, but too late"
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
