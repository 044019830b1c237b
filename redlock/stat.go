package redlock

import "sync/atomic"

// Stat is a snapshot of what a [Locker] has done and has to do.
type Stat struct {
	// FencedAtOnce counts the fencing numbers on which a quorum agreed, in one
	// round trip; FencedByConfirm those that took a second one.
	FencedAtOnce, FencedByConfirm uint64
	// Reclaiming counts the votes and releases that are still to be undone or
	// done again, one for each node.
	Reclaiming int
}

type counts struct{ fencedAtOnce, fencedByConfirm atomic.Uint64 }

// Stat returns a snapshot.
func (l *Locker) Stat() Stat {
	return Stat{
		FencedAtOnce:    l.counted.fencedAtOnce.Load(),
		FencedByConfirm: l.counted.fencedByConfirm.Load(),
		Reclaiming:      l.reclaims.count(),
	}
}
