package redlock

import (
	"strings"
	"sync/atomic"

	"github.com/redquorum/go-redlock/pool"
)

// twins finds out that two addresses lead to one server, which then would have
// two votes. The nodes say who they are when a connection opens, if they may, so
// it costs no round trip; and no look at more than pointers, until there is a
// new connection.
type twins struct{ last atomic.Pointer[lineup] }

// lineup is who the nodes are, and what that amounts to. It is immutable.
type lineup struct {
	nodes []*pool.Identity // nil where there was no connection yet
	err   error
}

// check returns ErrConfig if two nodes are known to be one server.
func (t *twins) check(pools []*pool.Pool) error {
	if last := t.last.Load(); last != nil && last.holds(pools) {
		return last.err
	}
	now := &lineup{nodes: make([]*pool.Identity, len(pools))}
	first := make(map[string]int, len(pools))
	for i, p := range pools {
		now.nodes[i] = p.Identity()
		if now.nodes[i] == nil || !distinct(now.nodes[i].RunID) {
			continue
		}
		if other, twice := first[now.nodes[i].RunID]; !twice {
			first[now.nodes[i].RunID] = i
		} else if now.err == nil {
			now.err = refuse("nodes %d and %d are one server: %s and %s", other+1, i+1, pools[other].Name(), p.Name())
		}
	}
	t.last.Store(now)
	return now.err
}

// holds reports whether the nodes are still those.
func (u *lineup) holds(pools []*pool.Pool) bool {
	for i, p := range pools {
		if p.Identity() != u.nodes[i] {
			return false
		}
	}
	return true
}

// distinct reports whether a run id tells servers apart. Some services show the
// same one, all zeros, for every server.
func distinct(runID string) bool { return strings.Trim(runID, "0") != "" }
