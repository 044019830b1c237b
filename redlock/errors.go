package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/pool"
)

// The outcomes that callers branch on, with errors.Is.
var (
	// ErrTaken is returned by Acquire and TryAcquire when others hold the lock,
	// or hold so many votes that no quorum is left.
	ErrTaken error = sentinel("others hold the lock")
	// ErrNoQuorum is returned when too few nodes answered, or answered too
	// late, to decide anything. It says nothing about who holds the lock.
	ErrNoQuorum error = sentinel("no quorum of nodes")
	// ErrLost is returned by Renew, Release and Err when the lock was ours and
	// no longer is: it expired, or its keys were deleted or taken.
	ErrLost error = sentinel("lock lost")
	// ErrReleased is returned by Renew and Err after Release.
	ErrReleased error = sentinel("lock released")
	// ErrClosed is returned by every method after Close of the [Locker].
	ErrClosed error = sentinel("locker closed")
	// ErrConfig is returned when an option, a name or the node list makes no
	// sense; nothing was sent.
	ErrConfig error = sentinel("configuration refused")
)

// sentinel is the text of an outcome without the package's prefix, so that an
// error that contains one shows the prefix once.
type sentinel string

func (s sentinel) Error() string { return "redlock: " + string(s) }

// NodeError is what one node contributed to a failed operation.
type NodeError struct {
	Op   string // "acquire", "confirm", "renew", "release", "inspect", "list", "watch", "check" or "break"
	Addr string // the node, without secrets
	// Err is what the node answered, or why it did not. It is nil if the node
	// did what it was asked to: the others made the operation fail.
	Err error
}

func (e *NodeError) Error() string {
	if e.Err == nil {
		return e.Addr + ": " + e.Op + ": done"
	}
	return e.Addr + ": " + e.Op + ": " + e.Err.Error()
}

func (e *NodeError) Unwrap() error { return e.Err }

// QuorumError says why an operation on a quorum of nodes failed. It unwraps to
// one of the outcomes above, to every node's cause, and, if the caller's
// context ended the operation, to that context's error and cause.
type QuorumError struct {
	Op    string   // as in [NodeError]
	Names []string // of the lock; the pattern of a listing
	Held  []string // the names that others were seen to hold
	// The votes. Failed counts the nodes that failed and those whose outcome is
	// unknown; the rest had not answered when the outcome was certain.
	Quorum, Granted, Refused, Failed int
	Nodes                            []NodeError // one for each node

	outcome error // one of the sentinels; nil if the context ended first
	detail  string
	ended   error         // the caller's context: its error and cause
	fatal   bool          // so many nodes fail for good that trying again is pointless
	wait    time.Duration // how long holders' TTLs still keep a quorum from being free
	silent  bool          // a holder announces nothing
}

// Error returns one line.
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlock: %s %s", e.Op, quoted(e.Names))
	if e.ended != nil {
		fmt.Fprintf(&b, ": %v", e.ended)
	}
	if e.outcome != nil {
		fmt.Fprintf(&b, ": %s", strings.TrimPrefix(e.outcome.Error(), "redlock: "))
	}
	if e.detail != "" {
		fmt.Fprintf(&b, ": %s", e.detail)
	}
	if len(e.Held) > 0 && len(e.Names) > 1 {
		fmt.Fprintf(&b, " (%s)", quoted(e.Held))
	}
	if e.Granted+e.Refused+e.Failed > 0 {
		fmt.Fprintf(&b, ": %d granted of %d needed, %d refused, %d failed", e.Granted, e.Quorum, e.Refused, e.Failed)
	}
	if err := e.nodes(); err != nil {
		fmt.Fprintf(&b, ": %v", err)
	}
	return oneLine(b.String())
}

// Unwrap returns the outcome, the context's error and cause, and the node
// errors.
func (e *QuorumError) Unwrap() []error {
	var errs []error
	if e.outcome != nil {
		errs = append(errs, e.outcome)
	}
	if e.ended != nil {
		errs = append(errs, e.ended)
	}
	for i := range e.Nodes {
		if e.Nodes[i].Err != nil {
			errs = append(errs, &e.Nodes[i])
		}
	}
	return errs
}

// nodes returns the node errors as one, or nil.
func (e *QuorumError) nodes() error {
	var all *multierror.Error
	for i := range e.Nodes {
		// That a node refused or was not waited for is in the numbers already.
		if n := &e.Nodes[i]; n.Err != nil && !errors.Is(n.Err, errHeld) && !errors.Is(n.Err, errPending) {
			all = multierror.Append(all, n)
		}
	}
	return inline(all)
}

// What a node that did not fail has to say.
var (
	errHeld    = errors.New("key is held by others")
	errMissing = errors.New("key is gone")
	errPassed  = errors.New("key is gone, or its counter is past the number")
	errOther   = errors.New("key holds another token")
	errPending = errors.New("not heard when the outcome was certain")
)

// inline gives a multierror text that fits on one line. It returns a true nil
// for an empty one.
func inline(all *multierror.Error) error {
	if all != nil {
		all.ErrorFormat = func(errs []error) string {
			texts := make([]string, len(errs))
			for i, err := range errs {
				texts[i] = err.Error()
			}
			return strings.Join(texts, "; ")
		}
	}
	return all.ErrorOrNil()
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(texts, ", ")
}

// quorumError describes a round that did not go well. The caller sets the
// outcome.
func quorumError[R any](p *poll[R]) *QuorumError {
	_, tally := p.round.Count()
	e := &QuorumError{
		Op:      p.op,
		Names:   p.names,
		Quorum:  tally.Quorum(),
		Granted: tally.Granted,
		Refused: tally.Refused,
		Failed:  tally.Failed + tally.Unknown,
	}
	permanent := 0
	for node, ballot := range p.round.Ballots() {
		if ballot.Vote == quorum.Pending {
			ballot.Err = errPending
		}
		e.Nodes = append(e.Nodes, NodeError{Op: p.op, Addr: p.locker.pools[node].Name(), Err: ballot.Err})
		if pool.Permanent(ballot.Err) {
			permanent++
		}
	}
	e.fatal = permanent > tally.Nodes-tally.Quorum()
	return e
}

// with returns the same error with an outcome.
func (e *QuorumError) with(outcome error) *QuorumError {
	failed := *e
	failed.outcome = outcome
	return &failed
}

// lossError says why a lock ended before it was released.
type lossError struct {
	names  []string
	kind   LossReason
	reason string
	cause  error // the renewal that found out; nil if the time was up
}

func (e *lossError) Error() string {
	text := fmt.Sprintf("redlock: lock %s lost: %s", quoted(e.names), e.reason)
	if e.cause != nil {
		text += ": " + strings.TrimPrefix(e.cause.Error(), "redlock: ")
	}
	return text
}

func (e *lossError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.cause}
}

// configError is a refused option, name or node list.
type configError struct{ what string }

func (e *configError) Error() string        { return "redlock: " + e.what }
func (e *configError) Is(target error) bool { return target == ErrConfig }

func refuse(format string, args ...any) error {
	return &configError{oneLine(fmt.Sprintf(format, args...))}
}

// contextError returns why ctx ended, or nil: its error, and its cause where
// that is something else.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		return &endedError{err, cause}
	}
	return context.Cause(ctx)
}

// endedError is a context's error together with its cause.
type endedError struct{ err, cause error }

func (e *endedError) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.err, e.cause} }
