package pool

import (
	"errors"
	"time"
)

// ChangeKind says what has become of a node.
type ChangeKind uint8

// Sick and Well take turns, whichever comes first. Quarantined comes with a
// connection.
const (
	Sick        ChangeKind = iota // calls fail at once from now on
	Well                          // connected, for the first time or after it was sick
	Quarantined                   // the restart guard keeps it from granting
)

// Change is what a monitor is told.
type Change struct {
	Kind ChangeKind    // what has become of the node
	Err  error         // why the node is sick
	For  time.Duration // how long the quarantine lasts
}

// WithMonitor calls tell with each change, in order, one after another. It must
// return at once and must not call the pool. Default: nobody is told.
func WithMonitor(tell func(Change)) Option {
	return func(s *settings) error {
		if tell == nil {
			return errors.New("nil monitor")
		}
		s.monitor = tell
		return nil
	}
}

// changes are those that the monitor has not been told of. [Pool.mu] guards
// them.
type changes struct {
	queue   []Change
	telling bool
	sick    bool // as of the last change
	known   bool // there was one
}

// noteLocked notes that the node is sick, or well; report must follow.
func (p *Pool) noteLocked(cause error) {
	c := &p.changes
	sick := cause != nil
	if p.monitor == nil || c.known && c.sick == sick {
		return
	}
	c.known, c.sick = true, sick
	kind := Well
	if sick {
		kind = Sick
	}
	c.queue = append(c.queue, Change{Kind: kind, Err: cause})
}

// report tells the monitor of changes. Whoever finds nobody telling tells, so
// that the order is kept without holding a mutex.
func (p *Pool) report() {
	if p.monitor == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.changes
	if c.telling {
		return
	}
	c.telling = true
	for len(c.queue) > 0 {
		next := c.queue[0]
		c.queue = c.queue[1:]
		p.tellUnlocked(next)
	}
	c.telling = false
}

// tellUnlocked lets go of the mutex for as long as the monitor runs, and takes
// it again even if that panics.
func (p *Pool) tellUnlocked(c Change) {
	p.mu.Unlock()
	defer p.mu.Lock()
	p.monitor(c)
}
