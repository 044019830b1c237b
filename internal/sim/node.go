package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/go-redlock/internal/memconn"
	"github.com/redquorum/go-redlock/internal/scripts"
)

// A Cluster is a number of nodes. It must be made inside a bubble.
type Cluster struct {
	nodes  []*Node
	byAddr map[string]*Node
	seed   uint64
}

// NewCluster returns n nodes. The seed decides how long messages take.
func NewCluster(n int, seed uint64) *Cluster {
	c := &Cluster{byAddr: make(map[string]*Node, n), seed: seed}
	for i := range n {
		node := &Node{
			number: i,
			addr:   fmt.Sprintf("node%d:6379", i+1),
			seed:   seed,
			store:  NewStore(),
			up:     true,
			start:  time.Now(),
			conns:  make(map[*conn]struct{}),
			dialed: make(map[int]uint64),
			apart:  make(map[int]bool),
			paused: make(map[int]bool),
		}
		node.random = rand.New(rand.NewPCG(seed, uint64(i)))
		node.store.offset = time.Duration(node.random.Int64N(int64(time.Millisecond)))
		node.store.publish = node.announceLocked
		c.nodes = append(c.nodes, node)
		c.byAddr[node.addr] = node
	}
	return c
}

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Node returns the i-th node, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.addr
	}
	return addrs
}

// Dialer returns what a client with this number connects with.
func (c *Cluster) Dialer(client int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n := c.byAddr[addr]; n != nil {
			return n.dial(ctx, client)
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.AddrError{Err: "no such node", Addr: addr}}
	}
}

// Connections returns how many connections a client has.
func (c *Cluster) Connections(client int) int {
	count := 0
	for _, n := range c.nodes {
		n.mu.Lock()
		for conn := range n.conns {
			if conn.client == client {
				count++
			}
		}
		n.mu.Unlock()
	}
	return count
}

// Pause stops a client where it touches the network: what it writes waits, and
// what arrives is not read. Its timers go on, as those of a process that was
// stopped do in the moment it goes on.
func (c *Cluster) Pause(client int, on bool) {
	for _, n := range c.nodes {
		n.mu.Lock()
		n.paused[client] = on
		for conn := range n.conns {
			conn.changed.Broadcast()
		}
		n.mu.Unlock()
	}
}

// SetSteady makes every packet arrive within a millisecond, unless its node is
// told to delay it.
func (c *Cluster) SetSteady() {
	for _, n := range c.nodes {
		n.mu.Lock()
		n.steady = true
		n.mu.Unlock()
	}
}

// A Node is a Redis server, as far as the library can see.
type Node struct {
	number int
	addr   string
	seed   uint64

	// Scripts, if set, hears of every script call, a plain SET among them: it
	// is called with the node locked, after the script.
	Scripts func(node, client int, script *scripts.Script, keys, args []string, reply any)
	// Written, if set, hears of every such call that a client writes, whether
	// or not it will arrive. The node is locked.
	Written func(node, client int, script *scripts.Script, keys, args []string)
	// Moved, if set, hears of every packet of a client's: that it was written,
	// that it has arrived at the node, that an answer has arrived at the client.
	// The node is locked.
	Moved func(client int)

	mu     sync.Mutex // guards what follows, and the connections
	store  *Store
	up     bool
	start  time.Time
	starts int
	hung   bool
	queue  []work // what waits for a hung node
	random *rand.Rand
	mute   bool
	deaf   bool
	lies   bool
	steady bool
	delay  time.Duration
	errors Errors
	loaded [scripts.Count]bool
	apart  map[int]bool // clients whose packets get lost, both ways
	paused map[int]bool // clients that are stopped
	conns  map[*conn]struct{}
	dialed map[int]uint64 // connections so far, by client
	calls  [scripts.Count]int
}

// work is what arrived in one packet.
type work struct {
	conn     *conn
	commands [][]string
}

// Store gives access to what the node remembers.
func (n *Node) Store(do func(*Store)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do(n.store)
}

// SetRate makes the node's clock run faster than time, by a factor, from the
// beginning.
func (n *Node) SetRate(rate float64) { n.Store(func(s *Store) { s.rate = rate }) }

// Calls returns how many script calls the node has executed.
func (n *Node) Calls() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := 0
	for _, calls := range n.calls {
		sum += calls
	}
	return sum
}

// Stop kills the process: connections are reset, and what was on its way in is
// lost. What the node remembers is kept.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up, n.hung, n.queue = false, false, nil
	n.loaded = [scripts.Count]bool{}
	for c := range n.conns {
		c.lost = true
	}
	n.resetLocked()
}

// Start is the opposite of Stop. If it forgets, it comes back with its fencing
// counters only.
func (n *Node) Start(forgets bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up {
		return
	}
	n.up, n.start = true, time.Now()
	n.starts++
	if forgets {
		n.store.Forget()
	}
}

// Hang stops the node from executing anything, and Resume lets it go on with
// all that has arrived, also on connections that were given up: one connection
// after the other, in any order.
func (n *Node) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = n.up
}

// Resume is the opposite of Hang.
func (n *Node) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = false
	queue := n.queue
	n.queue = nil
	var conns []*conn
	arrived := make(map[*conn][]work)
	for _, w := range queue {
		if arrived[w.conn] == nil {
			conns = append(conns, w.conn)
		}
		arrived[w.conn] = append(arrived[w.conn], w)
	}
	n.random.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	for _, c := range conns {
		for _, w := range arrived[c] {
			n.executeLocked(w)
		}
	}
}

// SetMute makes the node's replies get lost, and all that follows on the same
// connections.
func (n *Node) SetMute(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = on
}

// SetDeaf makes what is sent to the node get lost, and all that follows on the
// same connections.
func (n *Node) SetDeaf(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = on
}

// SetApart makes everything get lost between the node and a client, and all
// that follows on the same connections.
func (n *Node) SetApart(client int, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.apart[client] = on
}

// SetDelay makes every packet to and from the node take up to d longer.
func (n *Node) SetDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Errors is how a node answers scripts.
type Errors uint8

// The ways to answer.
const (
	NoErrors Errors = iota
	Instead         // with an error, having done nothing
	Besides         // with an error, having done what was asked
)

// SetErrors makes the node answer scripts with errors.
func (n *Node) SetErrors(errors Errors) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errors = errors
}

// FlushScripts makes the node forget the scripts that clients have loaded.
func (n *Node) FlushScripts() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loaded = [scripts.Count]bool{}
}

// Cut resets all connections. What was on its way in still arrives, on some of
// them.
func (n *Node) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resetLocked()
}

// CutListeners resets the connections on which clients listen.
func (n *Node) CutListeners() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.channels != nil {
			c.failLocked(reset())
		}
	}
}

// Lie makes the node claim that it has raised counters, when it is asked to
// confirm a number, without doing so.
func (n *Node) Lie() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lies = true
}

func (n *Node) resetLocked() {
	for c := range n.conns {
		c.failLocked(reset())
	}
}

func reset() error { return os.NewSyscallError("read", syscall.ECONNRESET) }

func (n *Node) dial(ctx context.Context, client int) (net.Conn, error) {
	n.mu.Lock()
	apart := n.apart[client]
	n.mu.Unlock()
	if apart {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: memconn.Addr(n.addr), Err: ctx.Err()}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: memconn.Addr(n.addr), Err: refused}
	}
	number := n.dialed[client]
	n.dialed[client]++
	stream := uint64(client)<<32 | uint64(n.number)<<16 | number
	c := &conn{node: n, client: client, process: n.starts, random: rand.New(rand.NewPCG(n.seed, stream))}
	c.changed = sync.NewCond(&n.mu)
	n.conns[c] = struct{}{}
	return c, nil
}

// arriveLocked takes up a packet.
func (n *Node) arriveLocked(w work) {
	switch {
	case w.conn.lost || !n.up || w.conn.process != n.starts:
	case n.hung:
		n.queue = append(n.queue, w)
	default:
		n.executeLocked(w)
	}
}

func (n *Node) movedLocked(c *conn) {
	if n.Moved != nil {
		n.Moved(c.client)
	}
}

func (n *Node) executeLocked(w work) {
	if n.deaf || n.apart[w.conn.client] {
		w.conn.lost = true
	}
	if w.conn.lost {
		return
	}
	n.movedLocked(w.conn)
	var reply []byte
	for _, command := range w.commands {
		reply = n.answerLocked(w.conn, reply, command)
	}
	w.conn.replyLocked(reply)
}

// answerLocked executes a command and appends its reply.
func (n *Node) answerLocked(c *conn, out []byte, command []string) []byte {
	switch {
	case command[0] == "EVALSHA" || command[0] == "EVAL":
		script, keys, args := scriptCall(command)
		if script == nil || command[0] == "EVALSHA" && !n.loaded[script.Index()] {
			return append(out, "-NOSCRIPT No matching script.\r\n"...)
		}
		n.loaded[script.Index()] = true
		return appendReply(out, n.scriptLocked(c, script, keys, args))
	case isPlain(command):
		return appendReply(out, n.setLocked(c, command))
	case command[0] == "SCRIPT" && len(command) == 3:
		for _, script := range scripts.All() {
			if command[2] == script.Source() {
				n.loaded[script.Index()] = true
				return bulk(out, hashes[script.Index()])
			}
		}
	case command[0] == "INFO":
		return bulk(out, fmt.Sprintf("# Server\r\nrun_id:%020d%020d\r\nuptime_in_seconds:%d\r\n",
			n.number, n.starts, int(time.Since(n.start)/time.Second)))
	case command[0] == "PING":
		return bulk(bulk(append(out, "*2\r\n"...), "pong"), "")
	case command[0] == "SUBSCRIBE":
		for _, channel := range command[1:] {
			if c.channels == nil {
				c.channels = make(map[string]bool)
			}
			c.channels[channel] = true
			out = n.subscribed(out, "subscribe", channel, len(c.channels))
		}
		return out
	case command[0] == "UNSUBSCRIBE":
		for _, channel := range command[1:] {
			delete(c.channels, channel)
			out = n.subscribed(out, "unsubscribe", channel, len(c.channels))
		}
		return out
	}
	return append(out, "-ERR unknown command\r\n"...)
}

func (n *Node) subscribed(out []byte, kind, channel string, count int) []byte {
	return integerReply(bulk(bulk(append(out, "*3\r\n"...), kind), channel), int64(count))
}

// isPlain reports whether a command is SET key token NX PX ms.
func isPlain(command []string) bool {
	return len(command) == 6 && command[0] == "SET" && command[3] == "NX" && command[4] == "PX"
}

// scriptCall takes an EVALSHA or EVAL apart; the script is nil if it is none of
// ours. A plain SET is taken for an acquire that grants no token twice.
func scriptCall(command []string) (script *scripts.Script, keys, args []string) {
	if isPlain(command) {
		return acquireScript, command[1:2], []string{command[2], command[5], "0", "0", "new"}
	}
	if command[0] != "EVALSHA" && command[0] != "EVAL" || len(command) < 3 {
		return nil, nil, nil
	}
	for _, script := range scripts.All() {
		if command[1] == hashes[script.Index()] || command[1] == script.Source() {
			rest := command[2:]
			numKeys := int(integer(rest[0]))
			return script, rest[1 : 1+numKeys], rest[1+numKeys:]
		}
	}
	return nil, nil, nil
}

// setLocked executes a plain SET.
func (n *Node) setLocked(c *conn, command []string) any {
	script, keys, args := scriptCall(command)
	reply := n.scriptLocked(c, script, keys, args)
	switch _, refused := reply.([]int64); {
	case reply == int64(0):
		return "OK"
	case refused, reply == wrongType: // of which SET NX knows nothing
		return nil
	}
	return reply
}

// acquireScript is what every acquire calls.
var acquireScript = scripts.Acquire([]string{"key"}, "token", time.Second, scripts.Fencing{}).Script

func (n *Node) scriptLocked(c *conn, script *scripts.Script, keys, args []string) any {
	n.calls[script.Index()]++
	var reply any = int64(1)
	switch {
	case n.errors == Instead:
		reply = loading
	case !n.lies || script.Name() != "confirm":
		reply = n.store.Run(script, keys, args)
	}
	if n.errors == Besides {
		reply = forbidden
	}
	if n.Scripts != nil {
		n.Scripts(n.number, c.client, script, keys, args, reply)
	}
	return reply
}

// appendReply encodes what a command answers.
func appendReply(out []byte, reply any) []byte {
	switch r := reply.(type) {
	case nil:
		out = append(out, "$-1\r\n"...)
	case string:
		out = append(append(append(out, '+'), r...), "\r\n"...)
	case int64:
		out = integerReply(out, r)
	case []int64:
		out = append(strconv.AppendInt(append(out, '*'), int64(len(r)), 10), "\r\n"...)
		for _, element := range r {
			out = integerReply(out, element)
		}
	case Failure:
		out = append(append(append(out, '-'), r...), "\r\n"...)
	}
	return out
}

func (n *Node) announceLocked(channel, message string) {
	for c := range n.conns {
		if c.channels[channel] {
			c.replyLocked(bulk(bulk(bulk([]byte("*3\r\n"), "message"), channel), message))
		}
	}
}

// hashes are made up. Redis computes others, but that is its affair.
var hashes = func() (hashes [scripts.Count]string) {
	for _, script := range scripts.All() {
		hashes[script.Index()] = "hash of " + script.Name()
	}
	return hashes
}()

func bulk(out []byte, s string) []byte {
	out = strconv.AppendInt(append(out, '$'), int64(len(s)), 10)
	return append(append(append(out, "\r\n"...), s...), "\r\n"...)
}

func integerReply(out []byte, i int64) []byte {
	return append(strconv.AppendInt(append(out, ':'), i, 10), "\r\n"...)
}
