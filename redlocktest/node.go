package redlocktest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/redquorum/go-redlock/internal/memconn"
)

// A Node is one Redis node. All its methods are safe for concurrent use.
//
// Methods that look at the data (of database 0) or change it directly work
// whatever state the node is in, and are not counted, delayed or failed.
type Node struct {
	addr  string // set when the node starts for the first time, and constant from then on
	piped bool

	// life is held by whoever stops or starts the node. It is a channel, not a
	// mutex, because stopping waits for goroutines.
	life   chan struct{}
	closed bool // guarded by life

	// mu guards what follows. It is taken with the mutex of miniredis held, by
	// the hook and by replies that are written; nothing that could take that
	// one, or wait, is therefore done while mu is held.
	mu      sync.Mutex
	db      *miniredis.Miniredis // survives a restart
	process *process             // nil while the node is stopped
	faults  faults
	total   int
	counts  map[string]int
	// outer holds the peers on whose behalf commands come in from outside. A
	// peer that is not among them was made up by a Lua script for a command
	// that it calls.
	outer map[*server.Peer]struct{}
}

// A process is one run of a node, from a start to the next stop.
type process struct {
	node    *Node
	db      *miniredis.Miniredis
	runID   string
	started time.Time
	lis     net.Listener // nil when piped

	// wg counts the goroutines that accept and serve connections; whoever stops
	// the process waits for them.
	wg sync.WaitGroup

	// Guarded by node.mu.
	clients map[*client]struct{}
	stopped bool
	hung    chan struct{} // closed by Resume; nil unless the node hangs
}

func newNode() *Node {
	return &Node{
		life:   make(chan struct{}, 1),
		counts: map[string]int{},
		outer:  map[*server.Peer]struct{}{},
	}
}

// Addr returns the node's address. It never changes.
func (n *Node) Addr() string { return n.addr }

// Stop kills the node: its connections are reset, new ones are refused, and
// commands that it had received but not executed are forgotten. The data is
// kept for [Node.Restart]. When Stop returns, everything the node ran has
// ended. Stopping a stopped node does nothing.
func (n *Node) Stop() {
	n.life <- struct{}{}
	defer func() { <-n.life }()
	n.stop()
}

// Restart starts the node again at the same address, and stops it before that
// if it runs. Its data is as it was, except for keys whose time has come:
// their clocks did not stand still, as they do not for a server that comes
// back with an append-only file. The script cache is empty and the run id new.
//
// Restart fails if something else has taken the TCP port in the meantime.
func (n *Node) Restart() error {
	return n.restart(false)
}

// RestartEmpty is [Node.Restart], but all data is lost, as it is for a server
// without persistence.
func (n *Node) RestartEmpty() error {
	return n.restart(true)
}

func (n *Node) restart(empty bool) error {
	n.life <- struct{}{}
	defer func() { <-n.life }()
	if n.closed {
		return errors.New("redlocktest: the cluster is closed")
	}
	n.stop()

	if empty {
		db, err := newDB()
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.db = db
		n.mu.Unlock()
	}
	return n.start()
}

func (n *Node) close() {
	n.life <- struct{}{}
	defer func() { <-n.life }()
	n.closed = true
	n.stop()
}

// newDB returns a miniredis that serves no connections of its own.
func newDB() (*miniredis.Miniredis, error) {
	db := miniredis.NewMiniRedis()
	db.ClockTTL(true)
	// Dial is the one way to a server without a listener; only the server is
	// wanted, whose Dispatch then executes what this package reads.
	conn, err := db.Dial()
	if err != nil {
		return nil, fmt.Errorf("redlocktest: %w", err)
	}
	return db, conn.Close()
}

// start runs with life held and no process running.
func (n *Node) start() error {
	p := &process{
		node:    n,
		db:      n.engine(),
		runID:   newRunID(),
		started: time.Now(),
		clients: map[*client]struct{}{},
	}
	if !n.piped {
		lis, err := net.Listen("tcp", cmp.Or(n.addr, "127.0.0.1:0"))
		if err != nil {
			return fmt.Errorf("redlocktest: %w", err)
		}
		if n.addr == "" {
			n.addr = lis.Addr().String()
		}
		p.lis = lis
	}

	// Commands that block end with this context; the last stop cancelled it.
	p.db.Lock()
	p.db.Ctx, p.db.CtxCancel = context.WithCancel(context.Background())
	p.db.Unlock()
	p.db.Server().SetPreHook(p.hook)
	n.FlushScripts()

	n.mu.Lock()
	n.process = p
	n.mu.Unlock()
	if p.lis != nil {
		p.wg.Go(p.accept)
	}
	return nil
}

// stop runs with life held.
func (n *Node) stop() {
	n.mu.Lock()
	p := n.process
	if p == nil {
		n.mu.Unlock()
		return
	}
	n.process = nil
	p.stopped = true
	clients := p.takeClientsLocked()
	n.mu.Unlock()

	if p.lis != nil {
		_ = p.lis.Close() // of no interest: nobody can connect either way
	}
	for _, c := range clients {
		c.kill(reset)
	}
	p.db.CtxCancel()
	n.wakeBlocked()
	p.wg.Wait()
}

// wakeBlocked makes commands such as BLPOP notice that their connection or
// their node has come to its end. Both are looked at under the mutex of
// miniredis, before each wait; a signal that is given under the same mutex,
// as that which follows any command is, cannot fall between look and wait.
func (n *Node) wakeBlocked() {
	n.do([]string{"PING"})
}

func newRunID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails, says its documentation
	return hex.EncodeToString(id[:])
}

// accept serves every connection until the listener is closed. A node that
// hangs goes on accepting, as the kernel does for a stopped process.
func (p *process) accept() {
	for {
		conn, err := p.lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Too many open files, or a client that was faster: neither is a
			// reason to stop, nor to spin.
			time.Sleep(5 * time.Millisecond)
			continue
		}
		p.serve(conn)
	}
}

// serve starts to serve a connection, unless the process is being stopped.
func (p *process) serve(conn net.Conn) bool {
	c := newClient(p, conn)
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if p.stopped {
		reset(conn)
		return false
	}
	p.clients[c] = struct{}{}
	p.node.outer[c.peer] = struct{}{}
	p.wg.Go(c.run)
	return true
}

func (p *process) takeClientsLocked() []*client {
	clients := make([]*client, 0, len(p.clients))
	for c := range p.clients {
		c.dead = true
		clients = append(clients, c)
	}
	clear(p.clients)
	return clients
}

// reset drops a connection so that its client sees ECONNRESET, not EOF.
func reset(conn net.Conn) {
	switch conn := conn.(type) {
	case *memconn.Conn:
		conn.Reset()
	case *net.TCPConn:
		_ = conn.SetLinger(0) // at worst the client sees EOF
	}
	hangUp(conn)
}

// hangUp drops a connection; its client can still read what was sent.
func hangUp(conn net.Conn) {
	_ = conn.Close() // it may have been closed before, from the other side of a kill
}

func (n *Node) dial(ctx context.Context, network string) (net.Conn, error) {
	if !n.piped {
		var d net.Dialer
		return d.DialContext(ctx, network, n.addr)
	}
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memconn.Addr(n.addr), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	if p == nil {
		return fail(refused)
	}
	ours, theirs := memconn.Pipe(memconn.Addr(n.addr), memconn.Addr("client"))
	if !p.serve(ours) {
		return fail(refused)
	}
	return theirs, nil
}

// Get returns the value of a string key and how long it will live, in whole
// milliseconds and never less than one; 0 means that it does not expire. ok is
// false when there is no such key, or no string behind it.
func (n *Node) Get(key string) (value string, ttl time.Duration, ok bool) {
	// One transaction, or the two answers could be about two different keys.
	replies, isArray := n.do([]string{"MULTI"}, []string{"GET", key}, []string{"PTTL", key}, []string{"EXEC"}).([]any)
	if !isArray || len(replies) != 2 {
		return "", 0, false
	}
	value, ok = replies[0].(string)
	pttl, _ := replies[1].(int)
	switch {
	case !ok, pttl == -2: // it expired between the two
		return "", 0, false
	case pttl == -1:
		return value, 0, true
	default:
		return value, time.Duration(max(pttl, 1)) * time.Millisecond, true
	}
}

// Set sets a string key. ttl is rounded up to whole milliseconds, in which
// Redis counts; without a positive one the key does not expire.
func (n *Node) Set(key, value string, ttl time.Duration) {
	if ttl <= 0 {
		n.do([]string{"SET", key, value})
		return
	}
	ms := (ttl + time.Millisecond - 1) / time.Millisecond
	n.do([]string{"SET", key, value, "PX", strconv.FormatInt(int64(ms), 10)})
}

// Delete deletes a key and reports whether there was one.
func (n *Node) Delete(key string) bool {
	return n.do([]string{"DEL", key}) == 1
}

// Keys returns the node's keys, sorted.
func (n *Node) Keys() []string {
	return n.engine().Keys()
}

// FlushScripts empties the script cache, as SCRIPT FLUSH does: the next EVALSHA
// of any script answers NOSCRIPT.
func (n *Node) FlushScripts() {
	n.do([]string{"SCRIPT", "FLUSH"})
}

func (n *Node) engine() *miniredis.Miniredis {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.db
}

// do executes commands past all faults and counters, and returns the answer to
// the last, nil when it was an error.
func (n *Node) do(commands ...[]string) any {
	var out bytes.Buffer
	peer := server.NewPeer(bufio.NewWriter(&out))
	n.mu.Lock()
	n.outer[peer] = struct{}{}
	db := n.db
	n.mu.Unlock()
	defer n.forget(peer)

	for _, command := range commands {
		out.Reset()
		db.Server().Dispatch(peer, command)
		peer.Flush()
	}
	reply, err := server.ParseReply(bufio.NewReader(&out))
	if err != nil {
		return nil
	}
	return reply
}

func (n *Node) forget(peer *server.Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.outer, peer)
}

// Commands returns how many commands the node has taken up from its clients
// since the cluster was started: executed, or answered with the error of
// [Node.SetError]. What still waits, because the node hangs or by
// [Node.SetDelay], is not in it, nor are the commands that Lua scripts call.
func (n *Node) Commands() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.total
}

// CountOf returns what part of [Node.Commands] is due to one command, in upper
// or lower case. A lock is acquired by "SET" or "EVALSHA", and released by
// "EVALSHA".
func (n *Node) CountOf(command string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts[canonical(command)]
}

// Connections returns how many connections the node has at this moment. It
// learns that a client has hung up when it has read all that the client sent,
// so a node that hangs goes on counting it.
func (n *Node) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0
	}
	return len(n.process.clients)
}
