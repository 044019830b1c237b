package sim

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/internal/memconn"
)

// A conn is a client's end of a connection to a node. There is no goroutine
// behind it: packets are timers.
//
// Everything in it is guarded by the node's mutex.
type conn struct {
	node    *Node
	client  int
	process int // which of the node's it was made to
	random  *rand.Rand
	changed *sync.Cond

	parsing  []byte    // written, no whole command yet
	inbound  time.Time // when the last packet to the node arrives
	outbound time.Time // when the last packet from it arrives
	channels map[string]bool
	lost     bool // what is sent to the node does not arrive any more
	silent   bool // what the node answers does not arrive any more

	buf     bytes.Buffer // arrived, not yet read
	failed  error        // what Read and Write return
	timer   *time.Timer  // of the read deadline
	expired bool
}

var _ net.Conn = (*conn)(nil)

// latency is how long a packet travels: mostly a fraction of a millisecond, at
// times longer than anybody waits, unless the network is steady.
func (c *conn) latency() time.Duration {
	d := 50*time.Microsecond + time.Duration(c.random.Int64N(int64(400*time.Microsecond)))
	if c.node.delay > 0 {
		d += time.Duration(c.random.Int64N(int64(c.node.delay)))
	}
	switch roll := c.random.IntN(100); {
	case c.node.steady:
	case roll < 2:
		d += time.Duration(c.random.Int64N(int64(60 * time.Millisecond)))
	case roll < 15:
		d += time.Duration(c.random.Int64N(int64(5 * time.Millisecond)))
	}
	return d
}

// dueLocked returns when a packet arrives that is sent now, behind the last one.
func (c *conn) dueLocked(last *time.Time) time.Duration {
	due := time.Now().Add(c.latency())
	if !due.After(*last) {
		due = last.Add(1)
	}
	*last = due
	return time.Until(due)
}

func (c *conn) Write(p []byte) (int, error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for c.failed == nil && n.paused[c.client] {
		c.changed.Wait()
	}
	if c.failed != nil {
		return 0, c.failed
	}
	c.parsing = append(c.parsing, p...)
	w := work{conn: c}
	for {
		command, rest := parseCommand(c.parsing)
		if command == nil {
			break
		}
		w.commands = append(w.commands, command)
		c.parsing = rest
		if n.Written != nil {
			if script, keys, args := scriptCall(command); script != nil {
				n.Written(n.number, c.client, script, keys, args)
			}
		}
	}
	if len(w.commands) > 0 {
		n.movedLocked(c)
		time.AfterFunc(c.dueLocked(&c.inbound), func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.arriveLocked(w)
		})
	}
	return len(p), nil
}

// replyLocked sends something to the client.
func (c *conn) replyLocked(reply []byte) {
	if c.node.mute || c.node.apart[c.client] {
		c.silent = true
	}
	if c.silent || c.failed != nil {
		return
	}
	time.AfterFunc(c.dueLocked(&c.outbound), func() {
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		if c.failed == nil {
			c.buf.Write(reply)
			c.changed.Broadcast()
			c.node.movedLocked(c)
		}
	})
}

func (c *conn) Read(p []byte) (int, error) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	for {
		switch {
		case c.failed != nil:
			return 0, c.failed
		case c.buf.Len() > 0 && !c.node.paused[c.client]:
			return c.buf.Read(p)
		case c.expired:
			return 0, os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
}

// Close gives the connection up. What was written before may have overtaken
// the news, or not.
func (c *conn) Close() error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.failLocked(net.ErrClosed)
	return nil
}

func (c *conn) failLocked(err error) {
	if c.failed != nil {
		return
	}
	c.failed = err
	if c.random.IntN(2) == 0 {
		c.lost = true
	}
	delete(c.node.conns, c)
	if c.timer != nil {
		c.timer.Stop()
	}
	c.changed.Broadcast()
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.expired = false
	if t.IsZero() || c.failed != nil {
		return c.failed
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(t), func() {
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		if c.timer == timer {
			c.expired = true
			c.changed.Broadcast()
		}
	})
	c.timer = timer
	return nil
}

// SetWriteDeadline does nothing: a Write never waits.
func (*conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) LocalAddr() net.Addr { return memconn.Addr("client" + strconv.Itoa(c.client)) }

func (c *conn) RemoteAddr() net.Addr { return memconn.Addr(c.node.addr) }

// parseCommand cuts the first command off, which the library sends as an array
// of bulk strings. It returns nil if it is not whole.
func parseCommand(data []byte) (command []string, rest []byte) {
	n, rest, ok := header(data, '*')
	if !ok {
		return nil, data
	}
	command = make([]string, 0, n)
	for range n {
		size, after, ok := header(rest, '$')
		if !ok || len(after) < size+2 {
			return nil, data
		}
		command = append(command, string(after[:size]))
		rest = after[size+2:]
	}
	return command, rest
}

func header(data []byte, kind byte) (n int, rest []byte, ok bool) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return 0, nil, false
	}
	if data[0] != kind {
		panic(io.ErrUnexpectedEOF) // not something the library sends
	}
	n, err := strconv.Atoi(string(data[1 : end-1]))
	if err != nil {
		panic(err)
	}
	return n, data[end+1:], true
}
