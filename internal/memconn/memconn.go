// Package memconn provides in-memory network connections that behave like TCP
// where a bare [net.Pipe] does not: writes go into a buffer and return, a
// closed end lets the other drain what was sent before it sees EOF, and a
// connection can be reset.
//
// Every wait is durably blocking in the sense of [testing/synctest]: it is a
// [sync.Cond] that waits, and a timer that wakes it. No mutex is held across a
// wait. A connection that is used inside a bubble must be made inside it.
package memconn

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// BufferSize is how many bytes a direction holds that were written and not
// yet read. A Write that does not fit waits for the reader, as it would on a
// socket whose send and receive buffers are full.
const BufferSize = 64 << 10

// An Addr is the name of one end of a connection.
type Addr string

// Network returns "mem".
func (Addr) Network() string { return "mem" }

// String returns the name.
func (a Addr) String() string { return string(a) }

// A Conn is one end of a connection. It is safe for concurrent use; concurrent
// Writes are not interleaved.
//
// It differs from TCP in one respect: a Write after the other end has closed
// fails with EPIPE at once, not only from the second on.
type Conn struct {
	in, out       *stream
	local, remote net.Addr
}

var _ net.Conn = (*Conn)(nil)

// Pipe returns the two ends of a new connection: the one whose local address
// is a, and the one whose local address is b.
func Pipe(a, b net.Addr) (*Conn, *Conn) {
	ab, ba := newStream(), newStream()
	return &Conn{in: ba, out: ab, local: a, remote: b}, &Conn{in: ab, out: ba, local: b, remote: a}
}

// Read implements [net.Conn]. It returns what is there, and waits only when
// nothing is.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write implements [net.Conn]. When it fails after a part of p was sent, it
// says how long that part is.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

// Close closes this end and unblocks its Reads and Writes. The other end can
// still read what was written to it.
func (c *Conn) Close() error {
	err := c.in.closeReader()
	c.out.closeWriter()
	return c.wrap("close", err)
}

// Reset makes both ends fail with ECONNRESET, and forgets what is in the
// buffers, as when a process is killed or a firewall answers in its place.
func (c *Conn) Reset() {
	c.in.breakOff()
	c.out.breakOff()
}

// LocalAddr implements [net.Conn].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements [net.Conn].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set", c.in.setReadDeadline(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.wrap("set", c.out.setWriteDeadline(t))
}

// wrap gives err the shape that errors of the net package have. EOF stays
// bare, as it does there: readers compare it with ==.
func (c *Conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // produced in this file, never wrapped
		return err
	}
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// A stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex // guards everything below; never held across a wait
	changed *sync.Cond // any change that may end someone's wait

	buf     bytes.Buffer
	writing bool // a Write is under way; others queue behind it, so that none is interleaved
	eof     bool // the writer's end is closed
	gone    bool // the reader's end is closed
	reset   bool

	readBy, writeBy deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.gone:
			return 0, net.ErrClosed
		case s.readBy.passed:
			return 0, os.ErrDeadlineExceeded
		case s.reset:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case len(p) == 0:
			return 0, nil
		case s.buf.Len() > 0:
			n, _ := s.buf.Read(p) // a bytes.Buffer that is not empty does not fail
			s.changed.Broadcast()
			return n, nil
		case s.eof:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing {
		if err := s.writeErrLocked(); err != nil {
			return 0, err
		}
		s.changed.Wait()
	}
	s.writing = true
	defer func() {
		s.writing = false
		s.changed.Broadcast()
	}()

	sent := 0
	for {
		if err := s.writeErrLocked(); err != nil {
			return sent, err
		}
		if n := min(len(p)-sent, BufferSize-s.buf.Len()); n > 0 {
			s.buf.Write(p[sent : sent+n])
			sent += n
			s.changed.Broadcast()
		}
		if sent == len(p) {
			return sent, nil
		}
		s.changed.Wait()
	}
}

func (s *stream) writeErrLocked() error {
	switch {
	case s.eof:
		return net.ErrClosed
	case s.writeBy.passed:
		return os.ErrDeadlineExceeded
	case s.reset:
		return os.NewSyscallError("write", syscall.ECONNRESET)
	case s.gone:
		return os.NewSyscallError("write", syscall.EPIPE)
	}
	return nil
}

func (s *stream) closeReader() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return net.ErrClosed
	}
	s.gone = true
	s.buf = bytes.Buffer{} // nobody will read it
	s.readBy.clearLocked()
	s.changed.Broadcast()
	return nil
}

func (s *stream) closeWriter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eof = true
	s.writeBy.clearLocked()
	s.changed.Broadcast()
}

func (s *stream) breakOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset = true
	s.buf = bytes.Buffer{}
	s.changed.Broadcast()
}

func (s *stream) setReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return net.ErrClosed
	}
	s.setLocked(&s.readBy, t)
	return nil
}

func (s *stream) setWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.eof {
		return net.ErrClosed
	}
	s.setLocked(&s.writeBy, t)
	return nil
}

// A deadline is guarded by its stream's mutex.
type deadline struct {
	timer  *time.Timer // nil when no deadline is pending
	passed bool
}

func (d *deadline) clearLocked() {
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{}
}

func (s *stream) setLocked(d *deadline, t time.Time) {
	d.clearLocked()
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		s.changed.Broadcast()
		return
	}
	// The timer says that the deadline passed, and no comparison of clocks
	// does: a deadline without a monotonic reading would now and then be found
	// to lie a little ahead by the very waiter that its timer woke, for good.
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.timer == timer { // else it had fired when a new deadline replaced it
			d.passed = true
			s.changed.Broadcast()
		}
	})
	d.timer = timer
}
