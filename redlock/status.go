package redlock

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// Forever is the TTL of a key that never ends. No lock of this library has one.
const Forever = scripts.Forever

// State is what the nodes together say of a lock.
type State uint8

// The states. They follow from one look at the nodes. An attempt or a release
// that is under way looks like a lock that is split or has lost its majority,
// for a moment: look again before you believe it. [Locker.Watch] does.
const (
	// StateUnknown means that the nodes that did not answer could make it
	// another state.
	StateUnknown State = iota
	// StateFree means that no node that answered has a token, and that those
	// that did not answer are too few for a quorum.
	StateFree
	// StateHeld means that a quorum of nodes has the same token.
	StateHeld
	// StateSplit means that nodes have different tokens and none can have a
	// quorum: contenders have taken votes from each other, or left some behind.
	StateSplit
	// StateLostMajority means that there is one token only, and that it cannot
	// have a quorum: of a lock that nodes have forgotten, or of an attempt that
	// has not been undone yet.
	StateLostMajority
)

func (s State) String() string {
	return word(s, "unknown", "free", "held", "split", "lost majority")
}

// MarshalText encodes the state as its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is what one look at all nodes showed of a lock.
//
// It contains tokens, and who knows a token can release the lock. They are left
// out when a Status is printed, logged with log/slog or encoded as JSON.
type Status struct {
	Name  string // of the lock
	State State  // what the nodes' answers come to
	// Token is the value that a quorum has or, in other states, the only one
	// that was seen.
	Token string `json:"-"`
	// Owner is the label in the token; empty if the token is another library's.
	Owner string
	// TTL is for how long a quorum still has the token, if nobody renews or
	// releases it: 0 unless the lock is held. A lock that was released within
	// [WithMinHold] is held until that is over.
	TTL time.Duration
	// FencingToken is the largest fencing counter that a node has for the name:
	// the number of the last holder who fenced, or 0. It outlives the lock.
	FencingToken uint64
	Quorum       int
	Nodes        []NodeStatus // one for each node

	asked, answered time.Duration // between these the nodes were as they are shown
}

// NodeStatus is what one node has of a lock.
type NodeStatus struct {
	Addr         string // the node, without secrets
	Token        string `json:"-"` // empty if the name is free there
	Held         bool   // the name is not free there
	Owner        string
	TTL          time.Duration
	FencingToken uint64
	// Err is why the node did not answer, or why the key there cannot be a
	// lock's.
	Err error
}

// Holders returns how many nodes have the status's token.
func (s Status) Holders() int {
	n := 0
	for i := range s.Nodes {
		if s.Nodes[i].Held && s.Nodes[i].Token == s.Token {
			n++
		}
	}
	return n
}

// String returns one line without the token.
func (s Status) String() string {
	text := fmt.Sprintf("%q is %v", s.Name, s.State)
	if s.State == StateHeld {
		text += fmt.Sprintf(" by %q on %d of %d nodes for %v", s.Owner, s.Holders(), len(s.Nodes), s.TTL)
	}
	return text
}

// GoString is String: a token must not get into a log by %#v either.
func (s Status) GoString() string { return s.String() }

// LogValue leaves the tokens out.
func (s Status) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("name", s.Name),
		slog.String("state", s.State.String()),
		slog.String("owner", s.Owner),
		slog.Duration("ttl", s.TTL),
		slog.Int("holders", s.Holders()),
	)
}

// String returns one line without the token.
func (n NodeStatus) String() string {
	switch {
	case n.Err != nil:
		return fmt.Sprintf("%s: %v", n.Addr, n.Err)
	case n.Held:
		return fmt.Sprintf("%s: held by %q for %v", n.Addr, n.Owner, n.TTL)
	}
	return n.Addr + ": free"
}

// GoString is String: a token must not get into a log by %#v either.
func (n NodeStatus) GoString() string { return n.String() }

// LogValue leaves the token out.
func (n NodeStatus) LogValue() slog.Value { return slog.StringValue(n.String()) }

// merge draws the conclusion from what the nodes say.
func (s *Status) merge() {
	s.Quorum = quorum.Size(len(s.Nodes))
	holders := s.holders()
	missing := 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		s.FencingToken = max(s.FencingToken, n.FencingToken)
		if n.Err != nil {
			missing++
		}
	}
	most := 0
	for token, ttls := range holders {
		most = max(most, len(ttls))
		if len(holders) == 1 || len(ttls) >= s.Quorum {
			s.Token, s.Owner = token, ownerOf(token)
		}
	}
	switch {
	case most >= s.Quorum:
		s.State = StateHeld
		ttls := holders[s.Token]
		slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		s.TTL = ttls[s.Quorum-1]
	case most+missing >= s.Quorum:
		s.State = StateUnknown
	case most == 0:
		s.State = StateFree
	case len(holders) > 1:
		s.State = StateSplit
	default:
		s.State = StateLostMajority
	}
}

// holders returns the TTLs with which the nodes have each token.
func (s *Status) holders() map[string][]time.Duration {
	holders := make(map[string][]time.Duration, 1)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Held {
			holders[n.Token] = append(holders[n.Token], n.TTL)
		}
	}
	return holders
}
