package redlock

import (
	"time"

	"github.com/redquorum/go-redlock/pool"
)

// NodeStat is a snapshot of one node, as this Locker sees it.
type NodeStat struct {
	Addr      string        // without secrets
	RoundTrip time.Duration // about how long an answer takes; 0 if there was none
	pool.Stat
}

// Nodes returns a snapshot of each node. It sends nothing.
func (l *Locker) Nodes() []NodeStat {
	all := make([]NodeStat, len(l.pools))
	for i, p := range l.pools {
		all[i] = NodeStat{Addr: p.Name(), RoundTrip: p.RoundTrip(), Stat: p.Stat()}
	}
	return all
}
