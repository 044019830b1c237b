package redlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
)

// claim is what one attempt may have put on the nodes: keys that hold its
// token. It outlives the attempt until nothing of it is left.
type claim struct {
	keys  []string
	token string
	ttl   time.Duration

	// unwanted is set before the first release is sent. From then on no command
	// that could set the keys is sent any more.
	unwanted atomic.Bool
	// clean has a bit for each node that has said it gave this claim nothing,
	// or was never asked.
	clean atomic.Uint64
	// doubt has a bit for each node that may still execute a command that sets
	// the keys, at any later time.
	doubt atomic.Uint64
}

// maxNodes is the number of bits in the sets of nodes above, less one to keep
// it odd.
const maxNodes = 63

func bit(node int) uint64 { return 1 << node }

// poll is one question to all nodes, and the round in which they vote on it.
type poll[R any] struct {
	locker *Locker
	op     string
	names  []string
	claim  *claim
	script *scripts.Call
	read   func(reply any) (quorum.Vote, R, error)
	began  time.Duration
	round  quorum.Round[R]
	calls  []pool.Call
	took   []atomic.Int64 // until each node voted; nil unless somebody observes
	// heard, if set, sees each node's result before the round does.
	heard func(node int, result pool.Result, vote quorum.Vote)
	// waiter, if set, is told of each vote once the round has it. (An interface,
	// for a function of the poll's owner would be one allocation more.)
	waiter interface {
		signal(node int, vote quorum.Vote)
	}
}

// send asks all nodes at once. It does not wait for any of them.
func (p *poll[R]) send() {
	p.begin()
	p.askFrom(0)
}

func (p *poll[R]) askFrom(first int) {
	for i := range p.calls {
		p.ask((first+i)%len(p.calls), p.began)
	}
}

// begin reads the clock, before anything is sent.
func (p *poll[R]) begin() {
	p.began = p.locker.clock.Elapsed()
	p.calls = make([]pool.Call, len(p.locker.pools))
	if p.locker.witness.on() {
		p.took = make([]atomic.Int64, len(p.calls))
	}
}

// ask asks one node, which has the node timeout from now on.
func (p *poll[R]) ask(node int, now time.Duration) {
	call := &p.calls[node]
	*call = pool.Call{Script: p.script, To: p, Node: node, Began: now}
	p.locker.pools[node].Start(call)
}

// Deliver turns a node's result into its vote.
func (p *poll[R]) Deliver(node int, result pool.Result) {
	ballot := quorum.Ballot[R]{Vote: quorum.Failed, Err: result.Err}
	switch {
	case result.Sent == pool.Maybe:
		ballot.Vote = quorum.Unknown
	case result.Err == nil:
		ballot.Vote, ballot.Reply, ballot.Err = p.read(result.Reply)
	}
	if p.took != nil {
		p.took[node].Store(int64(p.elapsed()))
	}
	if p.heard != nil {
		p.heard(node, result, ballot.Vote)
	}
	p.round.Cast(node, ballot)
	if p.waiter != nil {
		p.waiter.signal(node, ballot.Vote)
	}
}

// hearOut waits for the votes that are still out, for d at the most.
func (p *poll[R]) hearOut(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.round.Complete():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Wanted reports whether a command that sets the keys may still be sent.
func (p *poll[R]) Wanted() bool { return !p.claim.unwanted.Load() }
