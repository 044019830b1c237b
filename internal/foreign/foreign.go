// Package foreign is the door by which the compat packages of this module get
// from package redlock what other libraries do and its own users have no need
// of. Users cannot open it: some of this is safe only with care.
//
// The functions are set by package redlock. What they return is one of its
// options, whose types this package, below it, cannot name.
package foreign

import (
	"context"
	"time"
)

// Ways are how another library goes about a lock. The zero value is ours.
type Ways struct {
	// Token draws the token of an attempt. It should never return one twice, nor
	// one that anybody else has. Nodes refuse a key that holds it already; but
	// what an attempt left behind is undone by its token, at any later time.
	Token func() (string, error)
	// Thorough makes an operation whose outcome is certain wait for the nodes
	// that have not answered, for a moment that a node that hangs can cost.
	Thorough bool
	// Shuffle makes an attempt ask the nodes from a random one on.
	Shuffle bool
}

var (
	// Locking returns a redlock.LockOption.
	Locking func(Ways) any
	// AnyNumber returns a redlock.Option that allows an even number of nodes.
	// A quorum is a majority then, too, and survives no more failures than with
	// one node less.
	AnyNumber func() any
	// Refused reports whether the cause in a redlock.NodeError is that the
	// node's vote was no.
	Refused func(error) bool
	// Unheard reports whether it is that the node was not waited for.
	Unheard func(error) bool
	// Discard deletes a key on every node that holds this token: in the
	// background, and where a node does not answer again and again, up to the
	// TTL. It does nothing once the *redlock.Locker is closed.
	Discard func(locker any, name, token string, ttl time.Duration)
	// Look asks all nodes of a *redlock.Locker what they have under a name. The
	// channel gets one Sight of each, in the order of their answers, and takes
	// them all, whether anybody receives or not.
	Look func(ctx context.Context, locker any, name string) (<-chan Sight, error)
)

// Thoroughness is how long an operation that is [Ways.Thorough] waits for answers
// that change nothing: short beside the TTL as well.
func Thoroughness(ttl time.Duration) time.Duration {
	return min(25*time.Millisecond, ttl/20)
}

// Sight is what one node has under a name.
type Sight struct {
	Node  int
	Token string // "" if the name is free there
	Err   error  // why that is not known
}
