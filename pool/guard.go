package pool

import "time"

// identifyLocked takes over what the node says of itself, and puts it in
// quarantine if it may have forgotten locks.
func (p *Pool) identifyLocked(l *link) {
	id := l.identity
	p.identity.Store(&id)
	if id.Err != nil {
		return
	}
	changed := p.runID != "" && p.runID != id.RunID
	p.runID = id.RunID
	if p.guard == 0 {
		return
	}
	// Redis subtracts one whole second from another, each cut off, so it may
	// have been running for almost a second less than it says.
	if up := max(0, id.Uptime-time.Second); up < p.guard {
		p.quarantineLocked(l.asked - up + p.guard)
	}
	if changed {
		// However long this server has been running, it may be another than the
		// one that granted locks under this address until a moment ago.
		p.quarantineLocked(l.asked + p.guard)
	}
}

func (p *Pool) quarantineLocked(end time.Duration) {
	if !p.quarantined || end > p.grants {
		p.quarantined, p.grants = true, end
		if p.monitor != nil {
			p.changes.queue = append(p.changes.queue, Change{Kind: Quarantined, For: end - p.clock.Elapsed()})
		}
	}
}
