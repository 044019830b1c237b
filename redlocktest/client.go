package redlocktest

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// A client is a connection to a node, as the node sees it.
//
// Three goroutines serve it. One reads commands and notes when they came, one
// executes them when they are due, one sends the answers when those are due;
// so a slow network to or from the node holds up neither its pace nor other
// connections. run owns the three.
type client struct {
	process *process
	conn    net.Conn
	peer    *server.Peer // stands for the connection inside miniredis
	replies *outbox

	requests chan request  // closed by the reader, when there will be no more
	killed   chan struct{} // closed by kill: whatever waits, gives up
	killOnce sync.Once
	dead     bool // guarded by node.mu: nothing more is taken up

	subscribed bool // used by the executing goroutine only
}

// A request is a command that has arrived.
type request struct {
	args []string
	due  time.Time
	err  error // it was not understood; the last request, then
}

// readAhead is how many commands a connection may have waiting for their
// time, with bytes that nobody has read yet behind them.
const readAhead = 128

func newClient(p *process, conn net.Conn) *client {
	c := &client{
		process:  p,
		conn:     conn,
		requests: make(chan request, readAhead),
		killed:   make(chan struct{}),
	}
	c.replies = &outbox{client: c, wake: make(chan struct{}, 1)}
	c.peer = server.NewPeer(bufio.NewWriter(c.replies))
	return c
}

// run serves the connection until the client has hung up and all that it sent
// is done, until it quits, or until it is killed.
func (c *client) run() {
	var reader, sender sync.WaitGroup
	reader.Go(c.read)
	sender.Go(c.replies.send)

	c.execute()
	if c.subscribed {
		c.unsubscribe()
	}
	c.replies.finish()
	sender.Wait() // answers that are on their way still arrive
	c.kill(hangUp)
	reader.Wait()

	n := c.process.node
	n.forget(c.peer)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(c.process.clients, c)
}

// kill ends the connection in the way that drop does. The goroutines that
// serve it end soon after, by themselves.
func (c *client) kill(drop func(net.Conn)) {
	c.killOnce.Do(func() {
		close(c.killed)
		c.peer.Close()
		drop(c.conn)
	})
}

func (c *client) read() {
	defer close(c.requests)
	r := bufio.NewReader(c.conn)
	// While the node hangs, bytes stay where the client's writes can feel that
	// nobody reads them.
	for c.awaitResume() {
		args, err := readCommand(r)
		req := request{args: args, due: c.process.node.arrival()}
		var violation *protocolError
		if errors.As(err, &violation) {
			req.err = violation
		} else if err != nil {
			return
		}
		select {
		case c.requests <- req:
		case <-c.killed:
			return
		}
		if req.err != nil {
			return
		}
	}
}

func (c *client) execute() {
	for req := range c.requests {
		if !c.awaitTime(req.due) {
			return
		}
		if req.err != nil {
			c.peer.WriteError(req.err.Error())
			c.peer.Flush()
			return
		}
		command := canonical(req.args[0])
		errText, failed, ok := c.takeUp(command)
		if !ok {
			return
		}
		switch {
		case failed:
			c.peer.WriteError(errText)
		default:
			if command == "SUBSCRIBE" || command == "PSUBSCRIBE" {
				c.subscribed = true
			}
			c.process.db.Server().Dispatch(c.peer, req.args)
		}
		c.peer.Flush()
		if command == "QUIT" {
			return
		}
	}
}

// takeUp waits until the node does not hang, counts the command, and settles
// whether it fails: all at one moment, so that what a test has set up before
// the counter moved holds for the command, and nothing is taken up after Hang
// has returned. It reports false if the connection was killed.
func (c *client) takeUp(command string) (errText string, failed, ok bool) {
	n := c.process.node
	for c.awaitResume() {
		n.mu.Lock()
		if c.dead {
			n.mu.Unlock()
			return "", false, false
		}
		if c.process.hung != nil { // again, since it was looked at
			n.mu.Unlock()
			continue
		}
		n.total++
		n.counts[command]++
		errText, failed = n.faults.fails(command, false)
		mute := n.faults.dropReplies
		n.mu.Unlock()
		if mute {
			c.replies.silence()
		}
		return errText, failed, true
	}
	return "", false, false
}

// awaitResume waits while the node hangs, and reports false if the connection
// was killed.
func (c *client) awaitResume() bool {
	for {
		c.process.node.mu.Lock()
		hung := c.process.hung
		c.process.node.mu.Unlock()
		if hung == nil {
			return !c.isKilled()
		}
		select {
		case <-hung:
		case <-c.killed:
			return false
		}
	}
}

// awaitTime waits until t, and reports false if the connection was killed.
func (c *client) awaitTime(t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return !c.isKilled()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.killed:
		return false
	}
}

func (c *client) isKilled() bool {
	select {
	case <-c.killed:
		return true
	default:
		return false
	}
}

// unsubscribe lets miniredis forget the connection's subscriptions, and so end
// the goroutines that serve them. What miniredis does when one of its own
// connections closes is out of reach here.
func (c *client) unsubscribe() {
	c.replies.silence()
	for _, command := range []string{"DISCARD", "UNSUBSCRIBE", "PUNSUBSCRIBE"} {
		c.process.db.Server().Dispatch(c.peer, []string{command})
	}
}

// arrival returns when a command that arrives now is due to be executed.
func (n *Node) arrival() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Add(n.faults.delay)
}

// departure returns when an answer that is given now leaves, if it does.
func (n *Node) departure() (due time.Time, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Add(n.faults.replyDelay), n.faults.dropReplies
}

// An outbox holds a connection's answers until it is time for them to leave.
// It takes any number of them, as Redis does: miniredis writes messages to
// subscribers while it holds its mutex, and one client that does not read must
// not stop the node.
type outbox struct {
	client *client
	wake   chan struct{} // holds one token when the sender may have missed a change

	mu       sync.Mutex // guards what follows
	queue    []packet
	silent   bool // nothing more is ever sent
	finished bool // nothing more is written
}

type packet struct {
	data []byte
	due  time.Time
}

// Write implements [io.Writer] for the connection's peer. It never waits.
func (o *outbox) Write(p []byte) (int, error) {
	due, lost := o.client.process.node.departure()
	o.mu.Lock()
	if lost {
		o.silent = true
	}
	if !o.silent {
		o.queue = append(o.queue, packet{append([]byte(nil), p...), due})
	}
	o.mu.Unlock()
	o.nudge()
	return len(p), nil
}

// silence drops all that is written from now on. What is on its way arrives.
func (o *outbox) silence() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = true
}

// finish lets the sender end once the queue is empty.
func (o *outbox) finish() {
	o.mu.Lock()
	o.finished = true
	o.mu.Unlock()
	o.nudge()
}

func (o *outbox) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// send is the goroutine that sends. It ends when the outbox is finished and
// empty, when the connection was killed, or when the client is gone.
func (o *outbox) send() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			finished := o.finished
			o.mu.Unlock()
			if finished {
				return
			}
			select {
			case <-o.wake:
			case <-o.client.killed:
				return
			}
			continue
		}
		next := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()

		if !o.client.awaitTime(next.due) {
			return
		}
		if _, err := o.client.conn.Write(next.data); err != nil {
			o.silence() // the client is gone, and its commands are executed all the same
			return
		}
	}
}
