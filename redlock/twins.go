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

// lineup is who the nodes are, no two of them the same; nil where there was no
// connection yet. It is immutable.
type lineup []*pool.Identity

// check returns ErrConfig if two nodes are known to be one server.
func (t *twins) check(pools []*pool.Pool) error {
	if last := t.last.Load(); last != nil && last.holds(pools) {
		return nil
	}
	now := make(lineup, len(pools))
	first := make(map[string]int, len(pools))
	for i, p := range pools {
		now[i] = p.Identity()
		// Who a suspect node was says nothing of where that server is now.
		if now[i] == nil || !distinct(now[i].RunID) || p.Suspect() {
			continue
		}
		if other, twice := first[now[i].RunID]; twice {
			return refuse("nodes %d and %d are one server: %s and %s", other+1, i+1, pools[other].Name(), p.Name())
		}
		first[now[i].RunID] = i
	}
	t.last.Store(&now)
	return nil
}

// holds reports whether the nodes are still those.
func (u lineup) holds(pools []*pool.Pool) bool {
	for i, p := range pools {
		if p.Identity() != u[i] {
			return false
		}
	}
	return true
}

// distinct reports whether a run id tells servers apart. Some services show the
// same one, all zeros, for every server.
func distinct(runID string) bool { return strings.Trim(runID, "0") != "" }
