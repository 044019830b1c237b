package quorum

import (
	"context"
	"slices"
	"sync"
)

// Ballot is one node's vote and what came with it.
type Ballot[R any] struct {
	Vote  Vote
	Reply R     // of a node that granted or refused
	Err   error // why the node did not grant
}

// Round collects the votes of all nodes on one question.
//
// It neither asks nor times out: the caller asks the nodes, and sees to it that
// [Round.Cast] is called exactly once for each, sooner or later. The exported
// fields are set before the first vote can arrive.
type Round[R any] struct {
	// Settled, if set, is called once, when the verdict is there and before
	// Wait returns it. It runs on the goroutine that cast the deciding vote and
	// must not block.
	Settled func(Verdict, Tally)
	// Straggler, if set, is called for each vote that arrives after the
	// verdict, or after the waiting was given up. It must not block.
	Straggler func(node int, ballot Ballot[R])

	rule    Rule
	decided chan struct{} // closed with the verdict

	mu        sync.Mutex // guards what follows; nothing is called under it
	tally     Tally
	verdict   Verdict
	ballots   []Ballot[R]
	abandoned bool
	complete  chan struct{} // made by Complete, closed with the last vote
}

// Init makes the round ready for n nodes.
func (r *Round[R]) Init(n int, rule Rule) {
	r.rule = rule
	r.decided = make(chan struct{})
	r.tally.Nodes = n
	r.ballots = make([]Ballot[R], n)
}

// Cast records the vote of a node.
func (r *Round[R]) Cast(node int, ballot Ballot[R]) {
	r.mu.Lock()
	straggler := r.abandoned || r.verdict != Undecided
	r.ballots[node] = ballot
	r.tally.Add(ballot.Vote)
	settled := false
	if r.verdict == Undecided {
		r.verdict = r.rule(r.tally)
		settled = r.verdict != Undecided
	}
	verdict, tally := r.verdict, r.tally
	if r.complete != nil && tally.Outstanding() == 0 {
		close(r.complete)
	}
	r.mu.Unlock()

	if settled {
		if r.Settled != nil {
			r.Settled(verdict, tally)
		}
		close(r.decided)
	}
	if straggler && r.Straggler != nil {
		r.Straggler(node, ballot)
	}
}

// Wait returns the verdict, or Undecided if ctx ended or stop was closed before
// the deciding vote was cast. From then on the remaining votes, that one
// included, are stragglers.
//
// A tie goes to the verdict: a vote that was counted for it is nobody's
// straggler, so whoever waits must be told.
func (r *Round[R]) Wait(ctx context.Context, stop <-chan struct{}) Verdict {
	select {
	case <-r.decided:
	case <-ctx.Done():
	case <-stop:
	}
	return r.GiveUp()
}

// GiveUp is Wait for a caller that does not want to wait any longer.
func (r *Round[R]) GiveUp() Verdict {
	if r.abandon() {
		return Undecided
	}
	<-r.decided // at most Settled is still running
	verdict, _ := r.Count()
	return verdict
}

// Decided returns a channel that is closed when the verdict is there and
// Settled has returned.
func (r *Round[R]) Decided() <-chan struct{} { return r.decided }

// abandon makes stragglers of the votes that are still out, unless there is a
// verdict.
func (r *Round[R]) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verdict != Undecided {
		return false
	}
	r.abandoned = true
	return true
}

// Complete returns a channel that is closed once every node has voted.
func (r *Round[R]) Complete() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.complete == nil {
		r.complete = make(chan struct{})
		if r.tally.Outstanding() == 0 {
			close(r.complete)
		}
	}
	return r.complete
}

// Count returns the verdict so far and the votes behind it.
func (r *Round[R]) Count() (Verdict, Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict, r.tally
}

// Ballots returns a copy of the ballots cast so far, by node.
func (r *Round[R]) Ballots() []Ballot[R] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ballots)
}
