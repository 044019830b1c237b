package pool

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// wire is the net.Conn below a redigo connection that this package dialled.
//
// Owning it buys two things. The connection can be cut from any goroutine, so
// its reader may block without a deadline while nothing is in flight, and
// sees at once when the server goes away. And replies can be checked before
// redigo allocates what their headers promise.
type wire struct {
	net.Conn
	guard guard
	cut   atomic.Bool

	// Written by whoever dials, before anybody else has the connection.
	sent   bool
	opaque bool // the bytes are not RESP: the user's dial options added TLS above

	timed bool // a read deadline is set; the reader's

	// The writer's.
	gathering bool
	gathered  []byte
}

// maxGathered is how much is written in one piece.
const maxGathered = 64 << 10

func (w *wire) Write(p []byte) (int, error) {
	if !w.sent && len(p) > 0 {
		// Every RESP request is an array, so anything else is a layer above.
		w.opaque, w.sent = p[0] != '*', true
	}
	if !w.gathering {
		return w.Conn.Write(p)
	}
	if len(w.gathered)+len(p) > maxGathered {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	w.gathered = append(w.gathered, p...)
	return len(p), nil
}

// gather keeps what is written back until release. redigo's own buffer holds
// some twenty commands, and each time it is full a system call here and
// another of the node's. A layer of TLS above may write while it reads, and so
// is not held back.
func (w *wire) gather() { w.gathering = !w.opaque }

func (w *wire) release() error {
	w.gathering = false
	return w.flush()
}

func (w *wire) flush() error {
	p := w.gathered
	if len(p) == 0 {
		return nil
	}
	w.gathered = p[:0]
	_, err := w.Conn.Write(p)
	return err
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && !w.opaque {
		if bad := w.guard.check(p[:n]); bad != nil {
			return 0, bad
		}
	}
	return n, err
}

// SetReadDeadline leaves out the system's bookkeeping when there is nothing
// to undo: redigo clears the deadline before each reply.
func (w *wire) SetReadDeadline(t time.Time) error {
	if t.IsZero() && !w.timed {
		return nil
	}
	w.timed = !t.IsZero()
	return w.Conn.SetReadDeadline(t)
}

// abort cuts the connection at once. On TCP it discards what has not been
// sent yet instead of letting the kernel keep trying: the fewer old commands
// reach a node later, the better.
func (w *wire) abort() {
	if w.cut.Swap(true) {
		return
	}
	conn := w.Conn
	if layered, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = layered.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing is what matters
	}
	_ = conn.Close()
}

// Limits on one reply of a node, all that it nests included: without that, a
// few bytes of header for each of four thousand arrays in four thousand arrays
// would be a gigabyte. The scripts answer small integers and short arrays;
// INFO and an inspected key are a few kilobytes.
const (
	maxBulk  = 1 << 20 // bytes in bulk strings
	maxArray = 1 << 12 // elements of arrays
	maxLine  = 1 << 12 // bytes of a header or a simple reply
	maxDepth = 4
)

var errOversized = errors.New("reply larger than any that is expected here")

// guard follows the framing of a RESP stream and fails on replies that no
// server should send here. redigo trusts lengths: an array header of a
// billion makes it allocate for a billion, and nested headers recurse without
// end, which no recover could catch.
type guard struct {
	line  []byte            // the header line so far
	skip  int               // bytes of a bulk string still to come, CRLF included
	open  [maxDepth + 1]int // elements still to come, per nesting level
	depth int

	elements, bytes int // of the present reply, as the headers so far promise
}

func (g *guard) check(p []byte) error {
	for len(p) > 0 {
		if g.skip > 0 {
			n := min(g.skip, len(p))
			g.skip -= n
			p = p[n:]
			if g.skip == 0 {
				g.element()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			end = len(p) - 1
		}
		if len(g.line)+end+1 > maxLine {
			return errOversized
		}
		g.line = append(g.line, p[:end+1]...)
		last := p[end]
		p = p[end+1:]
		if last != '\n' {
			return nil
		}
		if err := g.header(bytes.TrimRight(g.line, "\r\n")); err != nil {
			return err
		}
		g.line = g.line[:0]
	}
	return nil
}

func (g *guard) header(line []byte) error {
	if len(line) == 0 || (line[0] != '$' && line[0] != '*') {
		g.element() // a simple element, or rubbish that redigo refuses itself
		return nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil:
		return fmt.Errorf("malformed length in a reply: %.20q", line)
	case n < -1:
		return fmt.Errorf("negative length in a reply: %.20q", line)
	case n == -1:
		g.element()
	case line[0] == '$' && n > maxBulk-g.bytes, line[0] == '*' && n > maxArray-g.elements:
		return errOversized
	case line[0] == '$':
		g.bytes += n
		g.skip = n + len("\r\n")
	case n == 0:
		g.element()
	case g.depth == maxDepth:
		return errOversized
	default:
		g.elements += n
		g.depth++
		g.open[g.depth] = n
	}
	return nil
}

// element counts one element as complete, and with it every array it ends.
func (g *guard) element() {
	for g.depth > 0 {
		g.open[g.depth]--
		if g.open[g.depth] > 0 {
			return
		}
		g.depth--
	}
	g.elements, g.bytes = 0, 0
}
