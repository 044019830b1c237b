package pool

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
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
	wire     *wire              // nil if somebody else dialled
	hashes   [scripts.Count]any // strings, ready to be sent; nil where unknown
	identity Identity
	asked    time.Duration // when the node had said who it is
	// stirred wakes the reader of a link without wire: calls are in flight.
	stirred chan struct{}
	// gone is closed when conn has been closed or given back. No other link is
	// opened before: a pool has one connection, old bytes of a writer that was
	// held up cannot follow those of the next link, and what this one still
	// delivers comes before the results of the next.
	gone chan struct{}

	// Guarded by Pool.mu.
	flight   queue         // taken by a writer; oldest first
	bytes    int           // of the calls in flight, about
	writing  bool          // somebody writes
	answered bool          // the node has answered a call on this connection
	since    time.Duration // when the link came into use
	// scripted says that the last answer to a script was no error. Only then
	// may a plain SET grant: what no script can take back would stay.
	scripted bool
	users    int  // goroutines that use conn; the last one closes it
	dirty    bool // conn cannot be used any more, by anybody

	// What was in flight when the link ended, and its result: set with Pool.mu
	// held, by whoever ended it. The reader may be delivering an older result
	// at that moment; then the rest is the reader's to deliver as well.
	left    []*Call
	failure Result
	turn    atomic.Uint32

	// The writer's.
	batch []*Call
	args  []any
}

// The turn decides who delivers what is left when a link has ended: whoever
// ended it or, if the reader is delivering a result, the reader.
const (
	nobodys  uint32 = iota
	readers         // the reader delivers a result
	handover        // the same, and then what is left
)

// cut cuts the connection so that its reader and writer come back. Without a
// wire, the reader's timeout does it.
func (l *link) cut() {
	if l.wire != nil {
		l.wire.abort()
	}
}

// close is cut for a connection on which nothing is in flight, so nothing can
// be lost.
func (l *link) close() {
	if l.wire != nil {
		_ = l.wire.Close() // of no interest: the connection is not used any more
	}
}

// failLocked takes what is in flight out of the link; deliverLeft must follow.
func (l *link) failLocked(cause error) {
	l.left = l.flight.take()
	l.failure = Result{Err: cause, Sent: Maybe}
}

// deliverLeft delivers what was in flight when the link ended, or leaves it to
// the reader.
func (l *link) deliverLeft() {
	if !l.turn.CompareAndSwap(readers, handover) {
		deliver(l.left, l.failure)
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
	for c := range p.waiting.all {
		size += l.size(c)
	}
	return size <= inlineBytes
}

// bySource reports whether the script itself must be sent.
func (l *link) bySource(c *Call) bool {
	return !c.plain && (c.source || l.hashes[c.Script.Script.Index()] == nil)
}

// size is about how many bytes c takes on the wire.
func (l *link) size(c *Call) int {
	if l.bySource(c) {
		return c.Script.Size + len(c.Script.Script.Source())
	}
	return c.Script.Size
}

// write sends what is waiting, until nothing is. A caller that writes inline
// does one batch, and only if it surely fits the system's buffers; otherwise a
// goroutine takes over, so that nobody is kept waiting by the node, nor from
// their own answer by the calls of others.
//
// The goroutine lets those go first who are about to run: under load most of
// them have a call for this node, and one system call can take them all.
func (p *Pool) write(l *link, inline bool) {
	for room := true; ; room = false {
		if !inline {
			runtime.Gosched()
		}
		if !p.takeBatch(l, inline, room) {
			return
		}
		if err := l.send(); err != nil {
			p.broken(l, err)
		}
	}
}

// takeBatch moves what is waiting to the writer, and into flight. It returns
// false when the caller is no longer the writer, because there is nothing to
// write any more or a goroutine has taken over.
func (p *Pool) takeBatch(l *link, inline, first bool) bool {
	type drop struct {
		call *Call
		err  error
	}
	var dropped []drop
	p.mu.Lock()
	clear(l.batch)
	l.batch = l.batch[:0]
	// Here, where the batch is taken, and not before: meanwhile others have
	// been free to add to what is waiting.
	if inline && p.link == l && p.waiting.len() > 0 && (!first || !p.roomLocked(l)) {
		p.wg.Go(func() { p.write(l, false) })
		p.mu.Unlock()
		return false
	}
	for p.link == l {
		c := p.waiting.pop()
		if c == nil {
			break
		}
		if err := p.refusedLocked(l, c); err != nil {
			dropped = append(dropped, drop{c, err})
			continue
		}
		c.plain = c.Script.Plain && !c.refused && l.scripted
		c.size = l.size(c)
		l.bytes += c.size
		l.batch = append(l.batch, c)
	}
	more := len(l.batch) > 0
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
	}
	p.mu.Unlock()
	for _, d := range dropped {
		d.call.To.Deliver(d.call.Node, Result{Err: d.err})
	}
	if !more {
		p.leave(l) // after the deliveries: Close waits for them
	}
	return more
}

// refusedLocked says why a call that may grant must not be sent now.
func (p *Pool) refusedLocked(l *link, c *Call) error {
	switch {
	case !c.Script.Grants:
		return nil
	case !c.To.Wanted():
		return ErrUnwanted
	case c.Script.Held:
		return nil // the restart guard is about acquisitions
	case p.guard > 0 && l.identity.Err != nil:
		return fmt.Errorf("restart guard cannot work without INFO: %w", l.identity.Err)
	case p.quarantined && p.clock.Elapsed() < p.grants:
		return ErrRestarted
	}
	return nil
}

// send writes the batch. It is called by the writer only, without the lock.
func (l *link) send() error {
	gather := l.wire != nil && len(l.batch) > inlineCalls
	if gather {
		l.wire.gather()
	}
	for _, c := range l.batch {
		command := l.command(c)
		if err := l.conn.Send(command, l.args...); err != nil {
			return err
		}
	}
	if err := l.conn.Flush(); err != nil || !gather {
		return err
	}
	return l.wire.release()
}

// command returns the command of a call, and leaves its arguments in l.args.
func (l *link) command(c *Call) string {
	if c.plain {
		l.args = c.Script.AppendSet(l.args[:0])
		return "SET"
	}
	command, script := "EVALSHA", l.hashes[c.Script.Script.Index()]
	if l.bySource(c) {
		command, script = "EVAL", c.Script.Script.Source()
	}
	l.args = append(append(l.args[:0], script), c.Script.Args...)
	return command
}

// read delivers the answers, until the link has ended.
func (p *Pool) read(l *link) {
	p.readUntilEnd(l)
	p.mu.Lock()
	dirty := l.dirty
	p.mu.Unlock()
	if dirty && l.wire == nil {
		l.kill() // the writer may be stuck in it
	}
	p.leave(l)
}

func (p *Pool) readUntilEnd(l *link) {
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

// receive reads one reply. Where no wire can guard the stream, redigo may
// panic on a length that it cannot allocate.
func (l *link) receive(timeout time.Duration) (reply any, err error) {
	defer func() {
		if r := recover(); r != nil {
			reply, err = nil, fmt.Errorf("reply cannot be read: %v", r)
		}
	}()
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
	var timer *time.Timer
	for {
		p.mu.Lock()
		current, idle := p.link == l, l.flight.len() == 0
		p.mu.Unlock()
		if !current || !idle {
			return current
		}
		select { // the next call is often here already: no timer for that
		case <-l.stirred:
			continue
		default:
		}
		if timer == nil {
			timer = time.NewTimer(retire)
			defer timer.Stop()
		}
		select {
		case <-l.stirred:
		case <-p.ctx.Done():
			return false
		case <-timer.C:
			p.mu.Lock()
			if p.link == l && !l.writing && l.flight.len() == 0 && p.waiting.len() == 0 {
				p.link = nil
				p.state = Idle
			}
			p.mu.Unlock()
			timer.Reset(retire)
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
	l.bytes -= c.size
	p.measureLocked(l, c)
	if !c.plain {
		l.scripted = result.Err == nil
	}
	if c.unsettled(result) && !c.outdated() {
		// The server lost its scripts (SCRIPT FLUSH), or refused a plain SET
		// without saying why. The call goes out again in another form, ahead
		// of those that wait but behind older ones to which the same has
		// happened, so that whatever was started after it and is not on its way
		// yet stays behind it. Whether it is wanted is asked under the same
		// lock that a release must take to be sent.
		c.another(p.clock.Elapsed() + p.timeout)
		p.waiting.again.push(c)
		if l := p.appointLocked(); l != nil {
			p.wg.Go(func() { p.write(l, false) })
		}
		p.mu.Unlock()
		return true
	}
	l.turn.Store(readers)
	p.mu.Unlock()
	c.To.Deliver(c.Node, result)
	if l.turn.CompareAndSwap(readers, nobodys) {
		return true
	}
	deliver(l.left, l.failure)
	return false
}

// measureLocked notes how long the node took: for the first calls, and then for
// one in a few, as the clock costs as much as the rest of the counting. A call
// that had to wait for the connection says nothing about the node, nor does the
// second answer to one that was sent again.
func (p *Pool) measureLocked(l *link, c *Call) {
	const few, slower, faster = 8, 4, 2
	if c.Began < l.since || c.again() {
		return
	}
	p.answers++
	if p.answers > few && p.answers%few != 0 {
		return
	}
	took := p.clock.Elapsed() - c.Began
	switch {
	case p.roundTrip == 0:
		p.roundTrip = took
	case took < p.roundTrip:
		// The machine was busy before, rather than the node slow.
		p.roundTrip += (took - p.roundTrip) / faster
	default:
		p.roundTrip += (took - p.roundTrip) / slower
	}
	p.roundTrip = max(p.roundTrip, 1)
}

// leave gives up one use of the connection. The last to leave closes it, or
// gives it back to a wrapped redigo pool: a redigo connection must not be
// closed while somebody uses it.
func (p *Pool) leave(l *link) {
	p.mu.Lock()
	l.users--
	last := l.users == 0
	p.mu.Unlock()
	if last {
		l.hangUp()
		close(l.gone)
		p.wg.Done()
	}
}

// hangUp closes the connection, or gives it back, as its only user.
func (l *link) hangUp() {
	// A redigo pool reads the replies that are pending before it takes a
	// connection back, from a dead one what is buffered, rubbish or not.
	defer func() { _ = recover() }()
	if l.dirty {
		l.cut()
		if l.wire == nil {
			l.kill()
		}
	}
	_ = l.conn.Close() // of no interest: the connection is not ours any more
}

// kill makes redigo close a connection that it hides: a failed read does.
// Otherwise giving the connection back would wait for the replies that are
// pending, for ever if the node hangs. It may be called by the reader while
// the writer is writing.
func (l *link) kill() {
	const lines = 1 << 12 // more than redigo has buffered
	for range lines {
		if l.conn.Err() != nil {
			return
		}
		_, _ = l.receive(time.Nanosecond)
	}
}
