package pool

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Pauses between two attempts to reach a suspect node: the first, and the
// longest, before randomisation.
const (
	minPause = 25 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// connectLocked starts the goroutine that connects. The caller has set the
// state; there is never more than one such goroutine.
func (p *Pool) connectLocked(pause time.Duration) {
	last := p.last
	p.wg.Go(func() { p.connect(last, pause) })
}

// connect tries until there is a connection, or the pool is closed.
func (p *Pool) connect(last *link, pause time.Duration) {
	if last != nil {
		select {
		case <-last.gone:
		case <-p.ctx.Done():
			return
		}
	}
	next := minPause
	for {
		if !p.sleep(pause) {
			return
		}
		l, err := p.open()
		if p.connected(l, err) {
			return
		}
		// Between half and all of it: probes of many clients spread out.
		pause = next/2 + rand.N(next/2)
		next = min(2*next, maxPause)
	}
}

func (p *Pool) sleep(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// connected puts the outcome of an attempt into effect. It returns false if
// there must be another.
func (p *Pool) connected(l *link, err error) bool {
	p.mu.Lock()
	switch {
	case p.state == Closed:
		p.mu.Unlock()
		if l != nil {
			l.hangUp()
		}
		return true
	case err != nil:
		never := p.suspectLocked(err)
		first := !p.missed
		p.missed = true
		p.mu.Unlock()
		p.report()
		deliver(never, Result{Err: suspectError(err)})
		if first {
			p.logger.Warn("node cannot be reached", "node", p.name, "error", err)
		}
		return false
	}
	back := p.missed
	p.missed = false
	p.state, p.cause, p.link, p.last = Up, nil, l, l
	p.noteLocked(nil)
	p.identifyLocked(l)
	p.connects++
	l.since = p.clock.Elapsed()
	l.users = 1 // the reader
	p.wg.Add(1) // for the link: until it is hung up
	p.wg.Go(func() { p.read(l) })
	writer := p.appointLocked()
	p.mu.Unlock()
	p.report()
	if back {
		p.logger.Info("node is back", "node", p.name)
	}
	if writer != nil {
		p.write(writer, false)
	}
	return true
}

// suspectLocked makes the node suspect and returns the calls that can now
// never be sent. Somebody must be connecting, or be made to.
func (p *Pool) suspectLocked(cause error) (never []*Call) {
	p.state, p.cause = Suspect, cause
	p.noteLocked(cause)
	return p.waiting.take()
}

// A rupture is what must be seen to after a link has ended.
type rupture struct {
	link  *link
	cause error
	never []*Call
	pause time.Duration
}

// broken ends a link that failed.
func (p *Pool) broken(l *link, cause error) {
	cause = normalise(cause)
	p.mu.Lock()
	if p.link != l {
		p.mu.Unlock()
		return
	}
	r := p.breakLocked(l, cause)
	p.mu.Unlock()
	p.repair(r)
}

// breakLocked ends the present link. Calls in flight may have been executed;
// those that wait go out on the next connection, unless the node is suspect.
func (p *Pool) breakLocked(l *link, cause error) rupture {
	r := rupture{link: l, cause: cause}
	p.link = nil
	l.dirty = true
	l.failLocked(cause)
	// A connection that served, or at least lasted, does not end because the
	// node is sick: the server restarts, or closes what is idle. Look at once.
	served := l.answered || p.clock.Elapsed()-l.since >= maxPause
	if served && !errors.Is(cause, ErrTimeout) {
		p.state = Connecting
	} else {
		r.never = p.suspectLocked(cause)
		r.pause = minPause
	}
	return r
}

// repair delivers the results of what a link that ended leaves behind, and
// goes about the next.
func (p *Pool) repair(r rupture) {
	p.report()
	r.link.cut()
	r.link.deliverLeft()
	deliver(r.never, Result{Err: suspectError(r.cause)})

	// Only now: results of the old connection come before any of the new.
	p.mu.Lock()
	if p.state != Closed {
		p.connectLocked(r.pause)
	}
	p.mu.Unlock()
}
