package redlocktest

import (
	"context"
	"fmt"
	"net"
)

// TB is what [Start] and [StartPiped] need of a [testing.TB]. It is an
// interface of this package so that a program that uses [New] does not link
// the testing package.
type TB interface {
	Helper() // all three as in testing.TB
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// A Cluster is a number of independent nodes.
type Cluster struct {
	nodes  []*Node
	byAddr map[string]*Node
}

// Start starts n nodes that listen on loopback TCP ports, and closes them when
// the test ends.
func Start(tb TB, n int) *Cluster {
	tb.Helper()
	return start(tb, n, false)
}

// StartPiped starts n nodes that can be reached through [Cluster.Dial] only,
// over connections in memory, and closes them when the test ends. It needs no
// network. For use in a [testing/synctest] bubble it must be called inside the
// bubble, with the bubble's T.
func StartPiped(tb TB, n int) *Cluster {
	tb.Helper()
	return start(tb, n, true)
}

func start(tb TB, n int, piped bool) *Cluster {
	tb.Helper()
	c, err := newCluster(n, piped)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(c.Close)
	return c
}

// New starts n nodes that listen on loopback TCP ports, for programs that are
// not tests. The caller closes the cluster.
func New(n int) (*Cluster, error) {
	return newCluster(n, false)
}

func newCluster(n int, piped bool) (*Cluster, error) {
	if n < 1 {
		return nil, fmt.Errorf("redlocktest: a cluster of %d nodes", n)
	}
	c := &Cluster{byAddr: make(map[string]*Node, n)}
	for i := range n {
		node := newNode()
		if piped {
			node.addr = fmt.Sprintf("node%d.redlocktest:6379", i+1)
			node.piped = true
		}
		if err := node.RestartEmpty(); err != nil {
			c.Close()
			return nil, err
		}
		c.nodes = append(c.nodes, node)
		c.byAddr[node.addr] = node
	}
	return c, nil
}

// Addrs returns the nodes' addresses, in the order of the nodes:
// "127.0.0.1:port" or, for a piped cluster, "node1.redlocktest:6379" and so on.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.addr
	}
	return addrs
}

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.nodes) }

// Node returns the i-th node, counted from 0. It panics when there is none.
func (c *Cluster) Node(i int) *Node {
	if i < 0 || i >= len(c.nodes) {
		panic(fmt.Sprintf("redlocktest: no node %d in a cluster of %d", i, len(c.nodes)))
	}
	return c.nodes[i]
}

// Dial connects to the node of this cluster that has the address addr. It fits
// redis.DialContextFunc of redigo. The network matters only to a cluster that
// listens on TCP.
func (c *Cluster) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n, ok := c.byAddr[addr]
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.AddrError{Err: "redlocktest: no node of this cluster", Addr: addr}}
	}
	return n.dial(ctx, network)
}

// Close stops all nodes for good and waits until their goroutines have ended.
// Their data can still be looked at. Close is idempotent.
func (c *Cluster) Close() {
	for _, n := range c.nodes {
		n.close()
	}
}

// Holders returns the values that the string key has on the nodes at this
// moment, each with the number of nodes that hold it. Nodes are looked at one
// after the other, which in a bubble is at one and the same time.
//
// A stopped node counts, as does one that hangs: what it holds comes back with
// [Node.Restart], and a test that looks for two holders, or for a key that was
// left behind, wants to know.
func (c *Cluster) Holders(key string) map[string]int {
	holders := map[string]int{}
	for _, n := range c.nodes {
		if value, _, ok := n.Get(key); ok {
			holders[value]++
		}
	}
	return holders
}
