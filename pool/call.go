package pool

import (
	"time"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// A Call is one call of a script, or of the plain SET that may go before it, to
// one node. It may be started once; until it is delivered it belongs to the
// pool.
type Call struct {
	// Script is what is sent.
	Script *scripts.Call
	// To gets the result, under the number Node.
	To   Receiver
	Node int
	// Began is the moment the call's operation began, on the pool's clock: the
	// node has from then on [WithTimeout] to answer, and as much again for each
	// further form in which the call must be sent.
	Began time.Duration

	deadline time.Duration
	size     int  // about, on the wire, the last time it was sent
	source   bool // send the script itself: the node does not know its hash
	plain    bool // the plain SET is what goes out, or has
	refused  bool // the plain SET was, and the script must say why
}

// again reports whether the call has been answered before, in another form.
func (c *Call) again() bool { return c.source || c.refused }

// unsettled reports whether the call must be sent again, in another form, for
// the node to decide it. Neither answer has changed anything on the node.
//
// A SET that fails is refused like one that is answered null: a node that
// cannot be written can still say, by the script, that the name is held.
func (c *Call) unsettled(result Result) bool {
	if c.plain {
		return result.Reply == nil
	}
	return !c.source && hasCode(result.Err, "NOSCRIPT")
}

// outdated reports whether a call that was started later has made it wrong to
// send this one again: what is behind it on the connection has been executed
// already. A key that was deleted must stay so, and one that was told to end
// must not last for another TTL.
func (c *Call) outdated() bool {
	return (c.Script.Grants || c.Script.Prolongs) && !c.To.Wanted()
}

// another makes the call take its next form, which has a node timeout of its
// own: it is another command.
func (c *Call) another(deadline time.Duration) {
	if c.plain {
		c.refused = true
	} else {
		c.source = true
	}
	c.deadline = deadline
}

// Receiver takes the results of calls.
type Receiver interface {
	// Deliver is called exactly once per call, by a goroutine of the pool or
	// from within [Pool.Start]. It must not block. Results of one node are
	// delivered in the order in which the calls were started, except those of
	// calls that were never sent, or that had to be sent again: because the node
	// had lost its scripts, or had refused a plain SET.
	Deliver(node int, result Result)
	// Wanted reports whether a call that may grant a lock should still be
	// sent, if that has not happened yet, and one that may grant or prolong it
	// be sent again. It is called with the pool locked and must not block. Once
	// it has returned false, a call started afterwards is the last that the node
	// hears of this matter.
	Wanted() bool
}

// Sent says how far a call got.
type Sent uint8

const (
	// Never means that the node has not seen the call and never will.
	Never Sent = iota
	// Maybe means that the node may have executed the call, or may do so later.
	Maybe
	// Answered means that the node has executed or rejected the call.
	Answered
)

// Result is the outcome of a call.
type Result struct {
	// Reply is what the node answered, unless Err is set.
	Reply any
	// Err is the error that the node answered, as a redis.Error, or the reason
	// why there is no answer.
	Err error
	// Sent says how far the call got.
	Sent Sent
}

// queue is a FIFO of calls.
type queue struct {
	calls []*Call
	head  int
}

func (q *queue) len() int { return len(q.calls) - q.head }

func (q *queue) peek() *Call {
	if q.len() == 0 {
		return nil
	}
	return q.calls[q.head]
}

func (q *queue) push(calls ...*Call) {
	if q.head > len(q.calls)/2 && len(q.calls)+len(calls) > cap(q.calls) {
		// Move to the front rather than grow: the space is there, and what is
		// moved is less than what was popped since the last time.
		n := copy(q.calls, q.calls[q.head:])
		clear(q.calls[n:])
		q.calls, q.head = q.calls[:n], 0
	}
	q.calls = append(q.calls, calls...)
}

func (q *queue) pop() *Call {
	c := q.peek()
	if c == nil {
		return nil
	}
	q.calls[q.head] = nil
	q.head++
	if q.head == len(q.calls) {
		q.calls, q.head = q.calls[:0], 0
	}
	return c
}

// take returns all calls, oldest first, and leaves the queue empty.
func (q *queue) take() []*Call {
	calls := q.calls[q.head:]
	q.calls, q.head = nil, 0
	return calls
}

// backlog holds the calls that have not been sent on the present connection.
type backlog struct {
	again queue // were sent in another form, and go out before the others
	fresh queue
}

func (b *backlog) len() int { return b.again.len() + b.fresh.len() }

func (b *backlog) peek() *Call {
	if c := b.again.peek(); c != nil {
		return c
	}
	return b.fresh.peek()
}

func (b *backlog) pop() *Call {
	if c := b.again.pop(); c != nil {
		return c
	}
	return b.fresh.pop()
}

// all yields the calls in the order in which they will be sent.
func (b *backlog) all(yield func(*Call) bool) {
	for _, q := range [...]*queue{&b.again, &b.fresh} {
		for _, c := range q.calls[q.head:] {
			if !yield(c) {
				return
			}
		}
	}
}

// take returns all calls and leaves the backlog empty.
func (b *backlog) take() []*Call {
	return append(b.again.take(), b.fresh.take()...)
}
