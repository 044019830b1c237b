package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// retire is how long a connection of a wrapped redigo pool may be idle before
// it is given back.
const retire = 5 * time.Second

// link is one pipelined connection. One goroutine reads; at most one writes.
type link struct {
	conn     redis.Conn
	wire     *wire // nil if somebody else dialled
	hashes   [scripts.Count]string
	identity Identity
	// grants is the moment from which the restart guard lets the node grant
	// locks.
	grants time.Duration
	// stirred wakes the reader of a link without wire: calls are in flight.
	stirred chan struct{}

	// Guarded by Pool.mu.
	flight   queue // taken by a writer; oldest first
	bytes    int   // of the calls in flight, about
	writing  bool  // somebody writes
	answered bool  // the node has answered a call on this connection
	users    int   // goroutines that use conn; the last one closes it

	// The writer's.
	batch []*Call
	args  []any
}

// end cuts the connection so that its reader and writer come back. Without a
// wire, the reader's timeout does it.
func (l *link) end(polite bool) {
	switch {
	case l.wire == nil:
	case polite:
		_ = l.wire.Close() // nothing is in flight, so nothing can be lost
	default:
		l.wire.abort()
	}
}

// appointLocked makes the caller the writer and returns the link to write to,
// if calls are waiting and nobody writes.
func (p *Pool) appointLocked() *link {
	l := p.link
	if l == nil || l.writing || p.waiting.len() == 0 {
		return nil
	}
	l.writing = true
	l.users++
	return l
}

// roomLocked reports whether what is waiting can be written to l without
// blocking.
func (p *Pool) roomLocked(l *link) bool {
	if l.flight.len()+p.waiting.len() > inlineCalls {
		return false
	}
	size := l.bytes
	for _, c := range p.waiting.all() {
		size += c.Script.Size
	}
	return size <= inlineBytes
}

// write sends what is waiting, until nothing is. A caller that writes inline
// does one batch; if more has queued up meanwhile, a goroutine takes over, so
// that nobody is kept from their own answer by the calls of others.
func (p *Pool) write(l *link, inline bool) {
	for p.takeBatch(l) {
		if err := l.send(); err != nil {
			p.broken(l, err)
		}
		if inline {
			p.mu.Lock()
			more := p.link == l && p.waiting.len() > 0
			if more {
				p.wg.Go(func() { p.write(l, false) })
			}
			p.mu.Unlock()
			if more {
				return
			}
		}
	}
}

// takeBatch moves what is waiting to the writer, and into flight. It returns
// false when there is nothing to write any more; the caller is then no longer
// the writer.
func (p *Pool) takeBatch(l *link) bool {
	var dropped []*Call
	var result Result
	p.mu.Lock()
	clear(l.batch)
	l.batch = l.batch[:0]
	for p.link == l {
		c := p.waiting.pop()
		if c == nil {
			break
		}
		if err := p.refusedLocked(l, c); err != nil {
			dropped, result.Err = append(dropped, c), err
			continue
		}
		l.batch = append(l.batch, c)
		l.bytes += c.Script.Size
	}
	more, last := len(l.batch) > 0, false
	if more {
		l.flight.push(l.batch...)
		if l.stirred != nil {
			select {
			case l.stirred <- struct{}{}:
			default:
			}
		}
	} else {
		l.writing = false
		last = l.leaveLocked()
	}
	p.mu.Unlock()
	if last {
		p.hangUp(l)
	}
	deliver(dropped, result)
	return more
}

// refusedLocked says why a call that may grant must not be sent now.
func (p *Pool) refusedLocked(l *link, c *Call) error {
	switch {
	case !c.Script.Grants:
		return nil
	case !c.To.Wanted():
		return ErrUnwanted
	case p.guard > 0 && l.identity.Err != nil:
		return fmt.Errorf("restart guard cannot work without INFO: %w", l.identity.Err)
	case l.grants > 0 && p.clock.Elapsed() < l.grants:
		return ErrRestarted
	}
	return nil
}

// send writes the batch. It is called by the writer only, without the lock.
func (l *link) send() error {
	for _, c := range l.batch {
		command, script := "EVALSHA", l.hashes[c.Script.Script.Index()]
		if c.source || script == "" {
			command, script = "EVAL", c.Script.Script.Source()
		}
		l.args = append(append(l.args[:0], script), c.Script.Args...)
		if err := l.conn.Send(command, l.args...); err != nil {
			return err
		}
	}
	return l.conn.Flush()
}

// read delivers the answers, until the connection breaks.
func (p *Pool) read(l *link) {
	defer func() {
		p.mu.Lock()
		last := l.leaveLocked()
		p.mu.Unlock()
		if last {
			p.hangUp(l)
		}
	}()
	timeout := time.Duration(0)
	if l.wire == nil {
		timeout = p.timeout
	}
	for {
		if l.wire == nil && !p.awaitFlight(l) {
			return
		}
		reply, err := l.receive(timeout)
		if err != nil && !isAnswer(err) {
			p.broken(l, err)
			return
		}
		if !p.answer(l, Result{Reply: reply, Err: err, Sent: Answered}) {
			return
		}
	}
}

// receive reads one reply. Where no wire guards the stream, redigo may panic
// on a length that it cannot allocate.
func (l *link) receive(timeout time.Duration) (reply any, err error) {
	if l.wire == nil {
		defer func() {
			if r := recover(); r != nil {
				reply, err = nil, fmt.Errorf("reply cannot be read: %v", r)
			}
		}()
	}
	return redis.ReceiveWithTimeout(l.conn, timeout)
}

func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// awaitFlight waits until calls are in flight on a link without wire. It
// returns false when the link has ended, or was idle for long enough to be
// given back.
func (p *Pool) awaitFlight(l *link) bool {
	var timer <-chan time.Time
	for {
		p.mu.Lock()
		current, idle := p.link == l, l.flight.len() == 0
		if current && idle && timer == nil {
			timer = time.After(retire)
		}
		p.mu.Unlock()
		if !current || !idle {
			return current
		}
		select {
		case <-l.stirred:
		case <-p.ctx.Done():
			return false
		case <-timer:
			p.mu.Lock()
			if p.link == l && !l.writing && l.flight.len() == 0 && p.waiting.len() == 0 {
				p.link = nil
				p.state = Idle
			}
			p.mu.Unlock()
			timer = nil
		}
	}
}

// answer matches a reply to the oldest call in flight and delivers it. It
// returns false when the link has ended.
func (p *Pool) answer(l *link, result Result) bool {
	p.mu.Lock()
	if p.link != l {
		p.mu.Unlock()
		return false
	}
	c := l.flight.pop()
	if c == nil {
		p.mu.Unlock()
		p.broken(l, errors.New("reply without a call"))
		return false
	}
	l.answered = true
	l.bytes -= c.Script.Size
	if hasCode(result.Err, "NOSCRIPT") && !c.source && (!c.Script.Grants || c.To.Wanted()) {
		// The server lost its scripts (SCRIPT FLUSH). The call goes out again
		// with its source, ahead of those that wait, so that whatever was
		// started after it stays behind it. Whether it is wanted is asked under
		// the same lock that a release must take to be sent.
		c.source = true
		p.waiting.calls = append([]*Call{c}, p.waiting.take()...)
		if l := p.appointLocked(); l != nil {
			p.wg.Go(func() { p.write(l, false) })
		}
		p.mu.Unlock()
		return true
	}
	p.mu.Unlock()
	c.To.Deliver(c.Node, result)
	return true
}

// leaveLocked gives up one use of the connection and reports whether it was
// the last: then the caller must hang up.
func (l *link) leaveLocked() bool {
	l.users--
	return l.users == 0
}

// hangUp closes the connection, or gives it back to a wrapped redigo pool. A
// redigo connection must not be closed while somebody uses it.
func (p *Pool) hangUp(l *link) {
	_ = l.conn.Close() // of a broken connection: the cause is known already
	p.wg.Done()
}
