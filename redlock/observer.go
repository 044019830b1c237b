package redlock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/pool"
)

// Observer is told what a Locker does: for metrics and tracing. See
// [WithObserver].
type Observer interface {
	// Observe is called with each [Event], by the goroutine in which it happens:
	// a caller's, or one of a node's. So it is called concurrently, must return
	// at once, and must not call the Locker or one of its locks: Release and
	// Close wait for it.
	Observe(Event)
}

// Event is what an [Observer] is told, one of the types that say so. They share
// slices with the Locker: do not change them. None of them contains a token.
type Event interface{ event() }

// Attempted is one attempt to acquire, at its end.
type Attempted struct {
	Names []string      // of the lock, sorted
	Took  time.Duration // from the reading of the clock to the outcome
	Votes []NodeVote    // one for each node
	// Err is nil if the attempt won, and what TryAcquire returns otherwise.
	Err error
}

// Acquired is a lock that was handed to a caller.
type Acquired struct {
	Names        []string      // of the lock, sorted
	Waited       time.Duration // in the method that acquired it
	Validity     time.Duration // what it has left
	FencingToken uint64        // 0 without [WithFencing]
}

// AcquireFailed is an Acquire, TryAcquire, Resume or one of their kin that
// returned an error after it had begun.
type AcquireFailed struct {
	Names  []string      // of the lock, sorted
	Waited time.Duration // in the method
	Err    error         // what it returns
}

// Renewed is a renewal, at its end, of a lock that has not been released.
type Renewed struct {
	Names    []string      // of the lock, sorted
	Took     time.Duration // from the reading of the clock to the outcome
	Validity time.Duration // what the lock has left
	Votes    []NodeVote
	Err      error // nil if a quorum renewed
}

// LossReason says how a lock was lost.
type LossReason string

// Why a lock was lost.
const (
	LossExpired LossReason = "expired"      // its deadline passed
	LossMaxHold LossReason = "maximum hold" // it was held for the maximum ([WithMaxHold])
	LossDeleted LossReason = "deleted"      // a majority no longer has its keys
	LossStolen  LossReason = "stolen"       // likewise, and somebody else does
)

// Lost is a lock that ended before it was released.
type Lost struct {
	Names  []string // of the lock, sorted
	Reason LossReason
	Held   time.Duration // from the acquisition to its end
	Err    error         // what the lock's Err returns
}

// Released is the first Release of a lock, when a quorum has answered it, or
// none can. It may come after Release returned, if the context ended that.
type Released struct {
	Names    []string      // of the lock, sorted
	Held     time.Duration // from the acquisition to the call
	Validity time.Duration // what the lock had left at the call; 0 if it had been lost
	Took     time.Duration
	Votes    []NodeVote
	Err      error // what Release returns
}

// Reclaimed is a vote or a release on one node that was still to be undone, or
// done again, and no longer is.
type Reclaimed struct {
	Node string        // its address
	Took time.Duration // since it was first tried
	// Undone is false if it was given up: the TTL has undone it.
	Undone bool
}

// NodeSick is a node whose calls fail at once from now on. Events about nodes
// come in their order, and only from nodes that [New] has set up; for others
// there is [pool.WithMonitor].
type NodeSick struct {
	Node string // its address
	Err  error  // why
}

// NodeWell is a node that is connected, for the first time or again.
type NodeWell struct {
	Node string // its address
}

// NodeQuarantined is a node that the restart guard keeps from granting.
type NodeQuarantined struct {
	Node string        // its address
	For  time.Duration // from now on
}

func (Attempted) event()       {}
func (Acquired) event()        {}
func (AcquireFailed) event()   {}
func (Renewed) event()         {}
func (Lost) event()            {}
func (Released) event()        {}
func (Reclaimed) event()       {}
func (NodeSick) event()        {}
func (NodeWell) event()        {}
func (NodeQuarantined) event() {}

// Vote is a node's part in an operation.
type Vote uint8

// The votes.
const (
	VotePending Vote = iota // not heard when the outcome was certain
	VoteGranted             // it did what it was asked to
	VoteRefused             // others hold the key, or it is gone
	VoteFailed              // it could not, or was not sent the command
	VoteUnknown             // it may have done it, and nothing was heard
)

func (v Vote) String() string {
	return word(v, "pending", "granted", "refused", "failed", "unknown")
}

// MarshalText encodes the vote as its name.
func (v Vote) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// word returns the n-th word, or the number where there is none.
func word[N ~uint8](n N, words ...string) string {
	if int(n) < len(words) {
		return words[n]
	}
	return strconv.Itoa(int(n))
}

// NodeVote is a node's vote.
type NodeVote struct {
	Node string // its address
	Vote Vote
	Took time.Duration // from the beginning of the operation; 0 if pending
	Err  error         // why it is not a grant
}

// witness is the observer and what stands between it and the Locker. The zero
// value observes nothing.
type witness struct {
	observer Observer

	mu     sync.RWMutex // guards closed, and so that nothing is told after it; not held while telling
	closed bool
	under  sync.WaitGroup // calls of the observer that are under way
}

// on reports whether anybody wants to know. Events are made only then.
func (w *witness) on() bool { return w.observer != nil }

func (w *witness) tell(e Event) {
	if !w.on() {
		return
	}
	w.mu.RLock()
	if w.closed {
		w.mu.RUnlock()
		return
	}
	w.under.Add(1)
	w.mu.RUnlock()
	defer w.under.Done()
	w.observer.Observe(e)
}

// close returns when the observer is not being called any more, nor will be.
func (w *witness) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.under.Wait()
}

// monitor passes on what a node's pool tells.
func (w *witness) monitor(node string) func(pool.Change) {
	return func(c pool.Change) {
		switch c.Kind {
		case pool.Sick:
			w.tell(NodeSick{node, c.Err})
		case pool.Well:
			w.tell(NodeWell{node})
		case pool.Quarantined:
			w.tell(NodeQuarantined{node, c.For})
		}
	}
}

// votes returns how the nodes have voted so far.
func (p *poll[R]) votes() []NodeVote {
	votes := make([]NodeVote, 0, len(p.calls))
	for node, ballot := range p.round.Ballots() {
		vote := NodeVote{Node: p.locker.pools[node].Name(), Err: ballot.Err}
		switch ballot.Vote {
		case quorum.Pending:
			vote.Err = errPending
		case quorum.Granted:
			vote.Vote = VoteGranted
		case quorum.Refused:
			vote.Vote = VoteRefused
		case quorum.Failed:
			vote.Vote = VoteFailed
		case quorum.Unknown:
			vote.Vote = VoteUnknown
		}
		if vote.Vote != VotePending && p.took != nil {
			vote.Took = time.Duration(p.took[node].Load())
		}
		votes = append(votes, vote)
	}
	return votes
}

// elapsed returns how long the poll has been under way.
func (p *poll[R]) elapsed() time.Duration { return p.locker.clock.Elapsed() - p.began }

// told tells the observer of an attempt.
func (p *acquisition) told(failed *QuorumError) {
	w := &p.locker.witness
	if !w.on() {
		return
	}
	e := Attempted{Names: p.names, Took: p.elapsed(), Votes: p.votes()}
	if failed != nil {
		e.Err = failed
	}
	w.tell(e)
}

// clock reads the clock, if anybody wants to know.
func (w *witness) clock(l *Locker) time.Duration {
	if !w.on() {
		return 0
	}
	return l.clock.Elapsed()
}

// handOut ends a method that acquires, and began at began: the caller gets the
// lock, or the error. Only of a lock that was handed out are its renewals, its
// loss and its release told.
func (l *Locker) handOut(k *Lock, names []string, began time.Duration, err error) (*Lock, error) {
	w := &l.witness
	waited := w.clock(l) - began
	if err != nil {
		if w.on() {
			w.tell(AcquireFailed{Names: names, Waited: waited, Err: err})
		}
		return nil, err
	}
	k.announce(toldAcquired)
	if w.on() {
		k.mu.Lock()
		k.handed = true
		k.armLocked() // its loss is to be told when it happens
		left := k.leftLocked()
		k.mu.Unlock()
		told := false
		defer func() {
			if !told {
				// The observer has panicked: the caller does not get the lock,
				// and nobody else would release it.
				k.giveBack(context.Background())
			}
		}()
		w.tell(Acquired{Names: k.names, Waited: waited, Validity: max(left, 0), FencingToken: k.FencingToken()})
		told = true
	}
	return k, nil
}

// tellsLocked reports whether somebody is to be told of what happens to the lock,
// and then makes Release wait for that: telling.Done must follow.
func (k *Lock) tellsLocked() bool {
	if !k.handed || k.releasing != nil {
		return false
	}
	k.telling.Add(1)
	return true
}

// observe tells the observer that the lock was lost.
func (e *ending) observe() {
	defer e.lock.telling.Done()
	var loss *lossError
	if errors.As(e.why, &loss) {
		e.lock.locker.witness.tell(Lost{Names: e.lock.names, Reason: loss.kind, Held: e.held, Err: e.why})
	}
}
