package redlock

import (
	"context"
	"math/bits"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// counterPrefix is put before a key to make the key of its fencing counter.
const counterPrefix = reserved + "fence:"

// counterTTL is how long a counter outlives its last change, at the least. When
// it has ended, numbers go on from the clients' clocks; it must exceed what
// those may be apart.
const counterTTL = 24 * time.Hour

// FencingToken returns a number that is larger than that of every earlier
// holder of any of the lock's names, as long as counters are kept; see
// [WithFencing]. It is 0 without WithFencing. [Locker.Stat] counts how often a
// number took one round trip, and how often two.
func (k *Lock) FencingToken() uint64 { return uint64(k.number) }

// fencing returns what acquire is asked to do about the counters. Counters
// start at the client's wall clock in microseconds, so that one that was lost
// goes on above where it was; that clock may be wrong by any amount as long as
// counters are kept.
func (l *Locker) fencing(k *Lock) scripts.Fencing {
	if !k.config.fencing {
		return scripts.Fencing{}
	}
	return scripts.Fencing{
		Counters: k.counters(),
		Proposal: min(max(l.clock.Now().UnixMicro(), 1), 1<<52),
		TTL:      k.counterTTL(),
	}
}

// keptNumber is what a node that is refilled is asked to do about the counters: it
// has lost them with the keys, and this number has been given.
func (k *Lock) keptNumber() scripts.Fencing {
	if k.number == 0 {
		return scripts.Fencing{}
	}
	return scripts.Fencing{Counters: k.counters(), Proposal: k.number, TTL: k.counterTTL()}
}

func (k *Lock) counters() []string {
	counters := make([]string, len(k.keys))
	for i, key := range k.keys {
		counters[i] = counterPrefix + key
	}
	return counters
}

func (k *Lock) counterTTL() time.Duration { return max(counterTTL, 2*k.ttl) }

// fence settles the fencing number of a lock that was won: the largest counter
// M that the quorum returned.
//
// If a quorum returned exactly M, its counters are M already. Otherwise a
// second round raises them to M on a quorum of nodes that still hold the token.
// Either way every later holder shares a node with that quorum, whose counter
// was at least M when it voted, so that holder's number is larger. And since a
// node votes for M only once, by returning it or by raising its counter to it,
// of two attempts that overlapped not both can have got M, even where keys
// ended early, or where both have one token (see [Locker.Resume]).
func (k *Lock) fence(ctx context.Context, p *acquisition) *QuorumError {
	returned := uint64(0) // the nodes whose counter was M, by this vote
	for node, ballot := range p.round.Ballots() {
		if ballot.Vote != quorum.Granted {
			continue
		}
		switch fence := ballot.Reply.Fence; {
		case fence > k.number:
			k.number, returned = fence, bit(node)
		case fence == k.number:
			returned |= bit(node)
		}
	}
	if bits.OnesCount64(returned) >= quorum.Size(len(k.locker.pools)) {
		k.locker.counted.fencedAtOnce.Add(1)
		return nil
	}
	return k.confirm(ctx, returned)
}

// confirm is the second round. returned has the nodes that have returned M.
func (k *Lock) confirm(ctx context.Context, returned uint64) *QuorumError {
	p := &poll[struct{}]{
		locker: k.locker,
		op:     "confirm",
		names:  k.names,
		claim:  &k.claim,
		read:   readConfirmed,
	}
	p.round.Init(len(k.locker.pools), quorum.Early)
	raise := scripts.Confirm(k.keys, k.token, k.counters(), k.number, k.counterTTL())
	keep := scripts.ConfirmReturned(k.keys, k.token, k.counters(), k.number, k.counterTTL())
	p.begin()
	for node := range p.calls {
		p.script = raise
		if returned&bit(node) != 0 {
			p.script = keep
		}
		p.ask(node, p.began)
	}
	if p.round.Wait(ctx, k.locker.closing) == quorum.Won {
		k.locker.counted.fencedByConfirm.Add(1)
		return nil
	}
	err := quorumError(p)
	switch err.ended = contextError(ctx); {
	case err.ended != nil:
	case k.locker.isClosed():
		err.outcome = ErrClosed
	default:
		err.outcome, err.detail = ErrNoQuorum, "the fencing number could not be confirmed"
	}
	return err
}

func readConfirmed(reply any) (quorum.Vote, struct{}, error) {
	confirmed, err := scripts.ParseConfirm(reply)
	switch {
	case err != nil:
		return quorum.Failed, struct{}{}, err
	case !confirmed:
		return quorum.Refused, struct{}{}, errPassed
	}
	return quorum.Granted, struct{}{}, nil
}
