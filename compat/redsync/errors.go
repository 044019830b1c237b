package redsync

import (
	"errors"
	"fmt"

	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/redlock"
)

// ErrFailed is returned by Lock and TryLock when they have not got the lock for
// a reason that is no node's: the context ended, a quorum granted too late, or
// there was nothing to try.
var ErrFailed = errors.New("redsync: failed to acquire lock")

// ErrExtendFailed is returned by Extend when the lock had ended before, or its
// new end had come when the nodes had answered.
var ErrExtendFailed = errors.New("redsync: failed to extend lock")

// ErrLockAlreadyExpired is returned by Unlock when the lock had ended before, on
// the nodes, too.
var ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")

// ErrTaken is returned, as a pointer, when others hold the lock on so many nodes
// that no quorum is left.
type ErrTaken struct { //nolint:errname // the name that programs know
	Nodes []int // by their position in New, from 0: those that have answered so
}

func (err ErrTaken) Error() string {
	return fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes)
}

// ErrNodeTaken says, as a pointer, that others hold the lock on one node.
type ErrNodeTaken struct { //nolint:errname // the name that programs know
	Node int // by its position in New, from 0
}

func (err ErrNodeTaken) Error() string {
	return fmt.Sprintf("node #%d: lock already taken", err.Node)
}

// RedisError says, as a pointer, what one node answered as an error, or why it
// did not answer.
type RedisError struct {
	Node int // by its position in New, from 0
	Err  error
}

func (e RedisError) Error() string {
	return fmt.Sprintf("node #%d: %s", e.Node, e.Err)
}

// Unwrap returns the cause.
func (e RedisError) Unwrap() error { return e.Err }

// votes returns what the nodes have said to an operation that failed, in the
// errors of this package; nil if that explains nothing.
func votes(err error) error {
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) {
		return nil
	}
	var taken []int
	var refused, broken []error
	unheard := 0
	for i := range failed.Nodes {
		switch cause := failed.Nodes[i].Err; {
		case cause == nil:
		case foreign.Unheard(cause):
			unheard++
		case foreign.Refused(cause):
			taken = append(taken, i)
			refused = append(refused, &ErrNodeTaken{i})
		default:
			broken = append(broken, &RedisError{i, cause})
		}
	}
	// The outcome may have been certain before a quorum had refused.
	held := len(taken) > 0 && len(taken)+unheard >= failed.Quorum &&
		(errors.Is(failed, redlock.ErrTaken) || errors.Is(failed, redlock.ErrLost))
	switch {
	case !held:
		return errors.Join(append(refused, broken...)...)
	case len(broken) == 0:
		return &ErrTaken{taken} // by itself: programs assert the type
	}
	return errors.Join(append([]error{&ErrTaken{taken}}, broken...)...)
}

// broken returns what the nodes that failed have said; nil if there are none.
func broken(err error) error {
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) {
		return nil
	}
	var all []error
	for i := range failed.Nodes {
		if cause := failed.Nodes[i].Err; cause != nil && !foreign.Unheard(cause) && !foreign.Refused(cause) {
			all = append(all, &RedisError{i, cause})
		}
	}
	return errors.Join(all...)
}
